"""download-kernels: it names, and makes, exactly the kernels that the model's worker then takes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.cli import main
from tests.server.real_server import ROOT, SMALL, RealServer, octavo, write_model

_SCRIPT = """
import json
from octavo.ops.cpu import compile
from octavo.worker import kernels
from octavo.worker.worker import Worker
from tests.engine.tiny import GEMMA, LLAMA, tiny_config

MIXTRAL = {**LLAMA, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2}
planned, missing = set(), []
for hf_config, dtype, changes in (
    (LLAMA, "float32", {}),
    (LLAMA, "bfloat16", {}),
    (GEMMA, "bfloat16", {}),
    (MIXTRAL, "float32", {}),
    (LLAMA, "bfloat16", {"quantization": "int4", "cache_dtype": "fp8_e4m3"}),
    (LLAMA, "bfloat16", {"quantization": "int8", "cache_dtype": "int8_per_token_head"}),
    (GEMMA, "bfloat16", {"quantization": "nvfp4", "cache_dtype": "int4_per_token_head", "skipped_layers": ["sliding_window"]}),
    (MIXTRAL, "float32", {"quantization": "fp8_per_block", "cache_dtype": "nvfp4", "skipped_layers": ["0"]}),
):
    config = tiny_config(hf_config=hf_config, dtype=dtype, **changes)
    before = set(compile.tally.loaded + compile.tally.compiled)
    kept = kernels.prepare(config, is_dry=True)
    assert set(compile.tally.loaded + compile.tally.compiled) == before, "a dry run made kernels"
    planned |= set(kept["present"] + kept["compiled"])
    worker = Worker()
    worker.start(config)
    worker.close()
taken = set(compile.tally.loaded + compile.tally.compiled)
print(json.dumps({"missing": sorted(taken - planned), "needless": sorted(planned - taken), "taken": len(taken)}))
"""


def test_what_is_planned_is_what_workers_take() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["missing"], found["needless"]) == ([], [])
    assert found["taken"] > 15


def test_the_command_in_a_dry_run(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE_ROOT", str(tmp_path / "cache"))
    done = subprocess.run(octavo("download-kernels", "--dry-run", "--json"), cwd=ROOT, capture_output=True, text=True)
    kept = json.loads(done.stdout)
    assert len(kept["compiled"]) > 60
    assert kept["present"] == []
    assert kept["folder"].startswith(str(tmp_path / "cache" / "kernels"))
    assert not (tmp_path / "cache").exists()
    with pytest.raises(SystemExit) as caught:
        main.main(["download-kernels", "--dtype", "float32"])
    assert caught.value.code == 2
    assert "--dtype needs a MODEL" in capfd.readouterr().err
    assert main.main(["download-kernels", str(tmp_path / "none")]) == 1


@pytest.mark.slow
def test_after_it_a_server_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE_ROOT", str(tmp_path / "cache"))
    model = write_model(tmp_path / "model")
    command = octavo("download-kernels", str(model), *SMALL)
    counts = []
    for _ in range(2):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        counts.append([int(word) for word in done.stdout.splitlines()[-1].split() if word.isdigit()])
    (compiled, before), (again, there) = counts
    assert (before, again, there) == (0, 0, compiled)
    assert compiled > 5
    server = RealServer(model, *SMALL)
    try:
        assert f"Kernels: {compiled} loaded, 0 compiled" in server.wait_ready().log
    finally:
        server.close()
