"""version and collect-env: what they tell, and what they never tell."""

import json
import subprocess
from typing import Any

import pytest

from octavo import __version__, environment
from octavo.cli import collect_env, main


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["version"], ["--version"], ["-v"]):
        assert main.main(words) == 0
        assert capsys.readouterr().out == f"{__version__}\n"
    assert main.main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["octavo"] == __version__
    with pytest.raises(SystemExit) as caught:
        main.main(["version", "--jsn"])
    assert caught.value.code == 2


def test_a_report_has_every_section_and_no_secret(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        "HF_TOKEN": "hf_abc",
        "OCTAVO_API_KEY": "sk-abc",
        "VLLM_API_KEY": "sk-abc",
        "OTEL_EXPORTER_OTLP_HEADERS": "x=abc",
        "https_proxy": "http://user:abc@proxy:3128",
        "HF_ENDPOINT": "https://abc@mirror/x",
    }
    for name, value in {**secrets, "OCTAVO_LOGGING_LEVEL": "DEBUG", "UNRELATED": "abc"}.items():
        monkeypatch.setenv(name, value)
    assert main.main(["collect-env", "--json"]) == 0
    out = capsys.readouterr().out
    facts = json.loads(out)
    assert "abc" not in json.dumps(facts["environment"])
    assert secrets.keys() <= facts["environment"].keys()
    assert facts["environment"]["https_proxy"] == "http://***@proxy:3128"
    assert facts["environment"]["OCTAVO_LOGGING_LEVEL"] == "DEBUG"
    assert facts["octavo"]["version"] == __version__
    assert facts["packages"]["torch"]
    assert facts["processor"]["cores for this process"] >= 1
    assert facts["memory"]["total bytes"] > facts["memory"]["available bytes"] > 0
    plane = facts["kernels and implementations"]
    assert plane["level"] in ("avx512bf16", "avx512", "avx2", "plain")
    assert "bfloat16: cpu.linear_tile; " in plane["op linear"] or "float32: cpu.linear_tile" in plane["op linear"]
    assert "float16: reference" in plane["op linear"]
    text = collect_env.told(facts)
    assert all(title in text for title in facts)


def test_a_broken_device_plane_is_part_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, -4, "", "Traceback\nImportError: no torch\n")

    monkeypatch.setattr(collect_env.subprocess, "run", run)
    assert collect_env._device_plane() == {"broken": "exit status -4: ImportError: no torch"}


def test_relevant_variables_are_read_where_all_are() -> None:
    assert "PATH" not in environment.relevant()
