"""ModelScope: asked instead of the hub where the environment says so, through its own package, which is named when it is not there."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from octavo.checkpoint import hub, modelscope, source
from octavo.errors import ConfigError, ModelNotFoundError


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, dict[str, Any]]]:
    """The package's one function, which gives a folder; what it was asked for."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def snapshot_download(repo: str, **options: Any) -> str:
        calls.append((repo, options))
        if repo == "no/such":
            raise RuntimeError("not found")
        return str(tmp_path)

    module = types.ModuleType("modelscope.hub.snapshot_download")
    module.snapshot_download = snapshot_download  # type: ignore[attr-defined]
    for name in ("modelscope", "modelscope.hub"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "modelscope.hub.snapshot_download", module)
    monkeypatch.setenv("VLLM_USE_MODELSCOPE", "True")
    return calls


def test_a_checkpoint(asked: list[tuple[str, dict[str, Any]]], tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    (tmp_path / "model.safetensors").touch()
    found = source.resolve("org/name", revision="v1", download_dir="d", ignore=("x*",), offline=False)
    assert (found.kind, found.path) == ("folder", tmp_path)
    [(repo, options)] = asked
    assert (repo, options["revision"], options["cache_dir"], options["local_files_only"]) == ("org/name", "v1", "d", False)
    assert "x*" in options["ignore_patterns"]
    assert "*.safetensors" in options["allow_patterns"]


def test_a_gguf_file(asked: list[tuple[str, dict[str, Any]]], tmp_path: Path) -> None:
    (tmp_path / "m-Q4_K_M.gguf").touch()
    assert source.resolve("org/name:Q4_K_M", offline=False).path == tmp_path / "m-Q4_K_M.gguf"
    assert asked[0][1]["allow_patterns"] == ["*Q4_K_M*.gguf"]


def test_what_it_does_not_give(asked: list[tuple[str, dict[str, Any]]]) -> None:
    with pytest.raises(ModelNotFoundError, match="ModelScope does not give no/such: not found"):
        source.resolve("no/such", offline=False)
    with pytest.raises(ModelNotFoundError, match="has no safetensors"):
        source.resolve("org/empty", offline=False)


def test_the_package_is_named_when_it_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "modelscope", None)
    with pytest.raises(ConfigError, match=r"octavo\[modelscope\]"):
        modelscope.fetch(hub.Wanted("org/name"))


def test_a_redirect_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    (tmp_path / "redirects").write_text(f"org/name {tmp_path}")
    monkeypatch.setenv("VLLM_MODEL_REDIRECT_PATH", str(tmp_path / "redirects"))
    assert source.resolve("org/name", offline=True).path == tmp_path


def test_ignored_files_of_the_hub_are_not_chosen() -> None:
    names = ["a.gguf", "b-q4.gguf", "config.json"]
    assert hub._choose(hub.Wanted("o/n", ignore=("b-*",)), names) == ["a.gguf"]
    with pytest.raises(ModelNotFoundError, match="2 GGUF files"):
        hub._choose(hub.Wanted("o/n"), names)


def test_a_config_of_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    assert source.resolve_config(str(tmp_path)).path == tmp_path
    assert source.resolve_config(str(tmp_path / "config.json")).path == tmp_path
    with pytest.raises(ModelNotFoundError, match="nowhere is no folder"):
        source.resolve_config("./nowhere")
