"""Source: local things, the order of the places, and what is said when there is no model."""

from pathlib import Path

import pytest

from octavo import environment
from octavo.checkpoint import catalog, hub
from octavo.checkpoint.progress import Silent
from octavo.checkpoint.source import Source, resolve
from octavo.errors import CheckpointError, ModelNotFoundError


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("OCTAVO_CACHE_ROOT", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_a_folder_before_anything_else(tmp_path: Path) -> None:
    for name in ("smollm2", "org/name"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "a.gguf").touch()
        assert resolve(name) == Source("folder", Path(name), name)
    assert resolve(str(tmp_path / "smollm2")).load_format == "safetensors"


def test_a_gguf_file_and_a_folder_that_holds_one(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    file = tmp_path / "f" / "m-Q8_0.gguf"
    file.touch()
    assert resolve(str(file)) == Source("gguf", file, str(file))
    assert resolve("f") == Source("gguf", Path("f/m-Q8_0.gguf"), "f")
    assert resolve("f").load_format == "gguf"
    (tmp_path / "f" / "m-Q4_0.gguf").touch()
    with pytest.raises(ModelNotFoundError, match=r"(?s)2 GGUF files.*m-Q4_0\.gguf, m-Q8_0\.gguf"):
        resolve("f")


def test_a_folder_with_one_split_model_is_its_first_part(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"m-0000{number}-of-00002.gguf").touch()
    assert resolve(".").path == Path("m-00001-of-00002.gguf")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("empty", "holds no model"),
        ("bare", "no config.json"),
        ("notes.txt", "no .gguf file"),
        ("./nowhere/m.gguf", "(?s)does not exist.*nowhere does not exist either"),
        ("./emty", "(?s)does not exist.*did you mean empty"),
        ("missing.gguf", "does not exist"),
        ("smolm2", "(?s)no hub id.*did you mean smollm2"),
        ("a b", "no hub id"),
        ("", "holds no model|no hub id"),
    ],
)
def test_what_is_no_model(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "model.safetensors").touch()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ModelNotFoundError, match=says):
        resolve(name)


def test_offline_names_the_variable_the_folder_and_the_command(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        resolve("org/name")
    for word in ("HF_HUB_OFFLINE", str(tmp_path / "hub"), "hf download org/name"):
        assert word in str(caught.value)
    with pytest.raises(ModelNotFoundError, match="HF_HUB_OFFLINE"):
        resolve("smollm2")


def cached_repository(root: Path, files: list[str]) -> Path:
    """A repository in the hub's cache layout."""
    repo = root / "models--org--name"
    folder = repo / "snapshots" / ("a" * 40)
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("a" * 40)
    return folder


def test_offline_the_hubs_cache_is_used(tmp_path: Path) -> None:
    folder = cached_repository(tmp_path / "down", ["config.json", "model.safetensors"])
    assert resolve("org/name", download_dir=tmp_path / "down") == Source("folder", folder, "org/name")
    with pytest.raises(ModelNotFoundError, match="HF_HUB_OFFLINE"):
        resolve("org/name", download_dir=tmp_path / "down", revision="v2")
    with pytest.raises(ModelNotFoundError, match="HF_HUB_OFFLINE"):
        resolve("org/name:Q4_K_M", download_dir=tmp_path / "down")


def test_offline_a_gguf_file_is_picked_from_the_cache(tmp_path: Path) -> None:
    folder = cached_repository(tmp_path / "down", ["m-Q4_K_M.gguf", "sub/m-Q8_0.gguf", "config.json"])
    for name, file in [
        ("org/name:q4_k_m", "m-Q4_K_M.gguf"),
        ("org/name:Q8_0", "sub/m-Q8_0.gguf"),
        ("org/name/sub/m-Q8_0.gguf", "sub/m-Q8_0.gguf"),
    ]:
        assert resolve(name, download_dir=tmp_path / "down") == Source("gguf", folder / file, name)
    with pytest.raises(ModelNotFoundError, match="2 GGUF files"):
        resolve("org/name", download_dir=tmp_path / "down")


NAMES = ["README.md", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-IQ4_XS.gguf", "m-F16-00001-of-00002.gguf", "m-F16-00002-of-00002.gguf"]


@pytest.mark.parametrize(
    ("quantization", "file", "picked"),
    [
        ("Q4_K_M", None, ["m-Q4_K_M.gguf"]),
        ("q4_k_s", None, ["m-Q4_K_S.gguf"]),
        ("f16", None, ["m-F16-00001-of-00002.gguf", "m-F16-00002-of-00002.gguf"]),
        (None, "m-F16-00001-of-00002.gguf", ["m-F16-00001-of-00002.gguf", "m-F16-00002-of-00002.gguf"]),
        (None, "m-IQ4_XS.gguf", ["m-IQ4_XS.gguf"]),
        ("Q4_K", None, None),
        ("Q4", None, None),
        ("Q8_0", None, None),
        (None, None, None),
    ],
)
def test_picking_one_of_several_gguf_files(quantization: str | None, file: str | None, picked: list[str] | None) -> None:
    wanted = hub.Wanted("org/name", None, quantization, file)
    if picked is not None:
        assert hub._choose(wanted, NAMES) == picked
        return
    with pytest.raises(ModelNotFoundError, match=r"m-Q4_K_M\.gguf, m-Q4_K_S\.gguf, m-IQ4_XS\.gguf, m-F16-00001-of-00002\.gguf"):
        hub._choose(wanted, NAMES)


def test_repositories_without_readable_weights() -> None:
    with pytest.raises(CheckpointError, match="pickles"):
        hub._choose(hub.Wanted("org/name"), ["config.json", "pytorch_model.bin"])
    with pytest.raises(CheckpointError, match="no safetensors and no GGUF"):
        hub._choose(hub.Wanted("org/name"), ["config.json", "tf_model.h5"])
    assert hub._choose(hub.Wanted("org/name"), ["model.safetensors", "m-Q8_0.gguf"]) is hub.ALLOW


def test_the_catalogs_cache_comes_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = catalog.CATALOG["smollm2"]
    small = catalog.Model(**{field: getattr(model, field) for field in model.__slots__} | {"size_bytes": 4})
    monkeypatch.setitem(catalog.CATALOG, "smollm2", small)
    catalog.folder().mkdir(parents=True)
    file = catalog.folder() / model.file_name
    file.write_bytes(b"part")
    assert environment.cache_root() == tmp_path / "cache"
    assert resolve("SmolLM2", progress=Silent) == Source("gguf", file, "SmolLM2")
    file.write_bytes(b"par")  # not whole: as if it were not there
    with pytest.raises(ModelNotFoundError, match="HF_HUB_OFFLINE"):
        resolve("smollm2")
