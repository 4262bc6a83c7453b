"""The command line: every spelling that operators use gives the same options."""

import dataclasses

import pytest

from octavo.cli import main as cli
from octavo.cli import serve
from octavo.config.options import Options


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--max-model-len", "25.6k"], "max_model_len", 25600),
        (["--max_model_len=1K"], "max_model_len", 1024),
        (["--max-model-len", "auto"], "max_model_len", -1),
        (["--max-model-len", "-1"], "max_model_len", -1),
        (["--enable-prefix-caching"], "enable_prefix_caching", True),
        (["--no-enable-prefix-caching"], "enable_prefix_caching", False),
        (["--disable-prefix-caching"], "enable_prefix_caching", False),
        (["--no-disable-prefix-caching"], "enable_prefix_caching", True),
        (["--no-async-scheduling"], "async_scheduling", False),
        (["--disable-log-stats"], "disable_log_stats", True),
        (["--kv-cache-memory", "2G"], "kv_cache_memory_bytes", 2 * 2**30),
        (["--device-memory-utilization", "0.3"], "gpu_memory_utilization", 0.3),
        (["--served-model-name", "a", "b"], "served_model_name", ["a", "b"]),
        (["--hf-overrides", '{"a": 1}'], "hf_overrides", {"a": 1}),
        (["--hf-overrides.rope_scaling.factor", "4"], "hf_overrides", {"rope_scaling": {"factor": 4}}),
        (["-tp", "1"], "tensor_parallel_size", 1),
        (["--model", "x"], "model", "x"),
        (["x"], "model", "x"),
    ],
)
def test_spellings(words: list[str], field: str, value: object) -> None:
    options, _ = serve.parse(words)
    assert getattr(options, field) == value
    untouched = {f.name for f in dataclasses.fields(Options)} - {field}
    assert all(getattr(options, name) == getattr(Options(), name) for name in untouched)


def test_server_options_stay_apart() -> None:
    options, server = serve.parse(["m", "--port", "9", "--api-key", "k1", "k2", "--max-num-seqs", "3"])
    assert (server.port, server.api_key, options.max_num_seqs) == (9, ["k1", "k2"], 3)
    assert server.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--max-modle-len", "3"], "did you mean --max-model-len"),
        (["--dtype", "int9"], "invalid choice"),
        (["--max-num-seqs", "many"], "not a number"),
        (["--hf-overrides", "{"], "--hf-overrides"),
    ],
)
def test_wrong_words(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        serve.parse(words)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in cli.COMMANDS)
    assert cli.main(["--version"]) == 0
    assert cli.main(["serv"]) == 2
    assert "did you mean serve" in capsys.readouterr().err
