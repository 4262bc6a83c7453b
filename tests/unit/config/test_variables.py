"""The environment: each variable of vLLM works, is refused or told; wrong values and unknown names are said; one file reads it."""

import re
from pathlib import Path

import pytest

from octavo import environment
from octavo.config import variables
from octavo.errors import ConfigError

HERE = Path(__file__).parent
NAMES = [line for line in (HERE / "vllm_variables.txt").read_text().splitlines() if not line.startswith("#")]
PACKAGE = Path(environment.__file__).parent


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment.of_ours():
        monkeypatch.delenv(name)


def test_every_variable_of_vllm_is_known() -> None:
    assert len(NAMES) == 318
    unknown = [n for n in NAMES if n not in variables.table() and n.removeprefix("VLLM_") not in environment.VARIABLES]
    assert unknown == []
    both = [n for n in variables.table() if n.removeprefix("VLLM_") in environment.VARIABLES]
    assert both == []


def test_one_file_reads_the_environment() -> None:
    """Children get the whole of it, and progress looks at the terminal; nothing else may look."""
    allowed = {
        "environment.py",
        "checkpoint/progress.py",
        "checkpoint/catalog.py",
        "engine/launcher.py",
        "bench/startup.py",
        "cli/collect_env.py",
    }
    readers = {str(f.relative_to(PACKAGE)) for f in PACKAGE.rglob("*.py") if re.search(r"os\.(environ|getenv)", f.read_text())}
    assert readers <= allowed


@pytest.mark.parametrize("variable", [v for v in variables.table().values() if v.name.startswith("VLLM_")], ids=lambda v: v.name)
def test_what_a_variable_gets(variable: variables.Variable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    kind, _, text = variable.effect.partition(": ")
    for value in variable.harmless:
        monkeypatch.setenv(variable.name, value)
        assert variables.check() == []
    monkeypatch.setenv(variable.name, "something")
    if kind == "note":
        assert variables.check() == [f"environment: {variable.name}: {text}"]
    elif kind == "gone":
        with caplog.at_level("WARNING", logger="octavo"):
            assert variables.check() == []
        assert f"{variable.name}: vLLM has it no more; {text}" in caplog.text
    else:
        with pytest.raises(ConfigError, match=f"{variable.name}=something: "):
            variables.check()


def test_a_fallback_in_use_is_named_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    assert variables.check() == ["environment: VLLM_API_KEY is read, as OCTAVO_API_KEY would be"]
    assert environment.api_keys() == ["secret"]
    monkeypatch.setenv("OCTAVO_API_KEY", "a, b,")
    assert variables.check() == []
    assert environment.api_keys() == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("OCTAVO_LOGING_LEVEL", "octavo does not have such a variable; did you mean OCTAVO_LOGGING_LEVEL?"),
        ("VLLM_LOGGING_LEVL", "neither vLLM nor octavo has such a variable; did you mean VLLM_LOGGING_LEVEL?"),
        ("VLLM_DSV4_MEGA_FP8_COMBINE", "neither vLLM nor octavo has such a variable"),
        ("OCTAVO_ROCM_USE_AITER", "octavo does not read it: awaits GPUs"),
        ("VLLM_ATTENTION_BACKEND", "vLLM has it no more; set --attention-backend"),
    ],
)
def test_unknown_names(name: str, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(name, "1")
    with caplog.at_level("WARNING", logger="octavo"):
        assert variables.check() == []
    assert f"environment: {name}: {said}" in caplog.text
    with pytest.raises(ConfigError) as caught:
        variables.check(strict=True)
    assert f"{name}: {said}" in str(caught.value)


def test_everything_that_is_refused_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ROCM_USE_AITER", "1")
    monkeypatch.setenv("VLLM_PLUGINS", "mine")
    with pytest.raises(ConfigError) as caught:
        variables.check()
    assert "VLLM_ROCM_USE_AITER=1: awaits GPUs" in str(caught.value)
    assert "VLLM_PLUGINS=mine: awaits plugins" in str(caught.value)


@pytest.mark.parametrize("value", ["0", "False", "no", "OFF", ""])
def test_off_asks_for_nothing(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ROCM_USE_AITER", value)
    assert variables.check() == []


def test_variables_of_kubernetes_are_not_ours(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("VLLM_SERVICE_HOST", "VLLM_SERVICE_PORT_HTTP", "VLLM_PORT_8000_TCP_ADDR", "OCTAVO_SERVICE_PORT"):
        monkeypatch.setenv(name, "10.0.0.1")
    monkeypatch.setenv("VLLM_PORT", "tcp://10.0.0.1:8000")
    assert variables.check(strict=True) == []
    monkeypatch.setenv("VLLM_PORT", "8000")
    assert "the port of the server is --port" in variables.check()[0]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ENGINE_READY_TIMEOUT_S", "soon", "OCTAVO_ENGINE_READY_TIMEOUT_S='soon' is no number"),
        ("SERVER_DEV_MODE", "perhaps", "OCTAVO_SERVER_DEV_MODE='perhaps' is no switch"),
        ("MAX_STOP_STRINGS", "2.5", "is no whole number"),
        ("MAX_N_SEQUENCES", "0", "must be at least 1"),
        ("LOG_STATS_INTERVAL", "nan", "must be at least 0"),
        ("LOGGING_LEVEL", "LOUD", "is no level"),
        ("LOGGING_STREAM", "file", "is no stream"),
        ("WORKER_MULTIPROC_METHOD", "fork", "fresh interpreters"),
        ("MODEL_REDIRECT_PATH", "nowhere.json", "cannot be read"),
    ],
)
def test_values_that_cannot_be(name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"OCTAVO_{name}", value)
    with pytest.raises(ConfigError, match=re.escape(said)):
        variables.check()
    monkeypatch.delenv(f"OCTAVO_{name}")
    monkeypatch.setenv(f"VLLM_{name}", value)
    with pytest.raises(ConfigError):
        variables.check()


def test_a_redirect_names_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_MODEL_REDIRECT_PATH", str(tmp_path / "r"))
    (tmp_path / "r").write_text('{"org/name": "/models/x"}')
    assert environment.model_redirects() == {"org/name": "/models/x"}
    (tmp_path / "r").write_text("org/name\t/models/y\n\n")
    assert environment.model_redirects() == {"org/name": "/models/y"}


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("True", True), (" on ", True), ("0", False), ("no", False), ("", False)])
def test_switches(value: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", value)
    assert environment.server_dev_mode() is expected
    monkeypatch.setenv("OCTAVO_SERVER_DEV_MODE", "0")
    assert environment.server_dev_mode() is False
