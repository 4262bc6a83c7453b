"""The command line: every spelling that operators use gives the same options."""

import dataclasses
from pathlib import Path

import pytest

from octavo.cli import actions, serve
from octavo.cli import main as cli
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


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--hf-overrides.a.b+", "1,x", "--hf-overrides.a.b+=2"], "hf_overrides", {"a": {"b": [1, "x", 2]}}),
        (["--hf_overrides.rope-scaling.factor=4.0"], "hf_overrides", {"rope_scaling": {"factor": 4.0}}),
        (["--hf-overrides.a", "1", "--hf-overrides", '{"a": 0, "b": {"c": 2}}', "--hf-overrides.b.d=3"], "hf_overrides",
         {"a": 1, "b": {"c": 2, "d": 3}}),
        (["-ac.backend=CPU_ATTN"], "attention_config", {"backend": "CPU_ATTN"}),
        (["--attention-config.backend", "CPU_ATTN"], "attention_config", {"backend": "CPU_ATTN"}),
        (["--override-generation-config.top_k=True"], "override_generation_config", {"top_k": True}),
        (["--served-model-name", '["a", "b c"]'], "served_model_name", ["a", "b c"]),
        (["--served-model-name", "a", "--served-model-name", "b", "c"], "served_model_name", ["a", "b", "c"]),
        (["--max-num-batched-tokens", "25.6k"], "max_num_batched_tokens", 25_600),
        (["--kv-cache-memory-bytes=1_000"], "kv_cache_memory_bytes", 1000),
        (["--hf-token"], "hf_token", True),
        (["--hf-token=abc"], "hf_token", "abc"),
        (["--no-use-tqdm-on-load"], "use_tqdm_on_load", False),
        (["--max-logprobs", "-1"], "max_logprobs", -1),
        (["--tokenizer-mode", "glm5_next"], "tokenizer_mode", "glm5_next"),
        (["--performance_mode=throughput"], "performance_mode", "throughput"),
    ],
)  # fmt: skip
def test_more_spellings(words: list[str], field: str, value: object) -> None:
    options, _ = serve.parse(words)
    assert getattr(options, field) == value


@pytest.mark.parametrize("words", [["-O1"], ["-O", "1"], ["-O=1"], ["--optimization-level=1"], ["-O3", "-O1"]])
def test_the_optimization_level_in_its_spellings(words: list[str]) -> None:
    options, _ = serve.parse(words)
    assert options.optimization_level == 1
    assert options.accepted == []


@pytest.mark.parametrize("words", [["-cc.mode=none"], ["-cc", '{"mode": "none"}'], ["--compilation-config.mode", "none"]])
def test_the_compilation_config_in_its_spellings(words: list[str]) -> None:
    options, _ = serve.parse(words)
    assert options.compilation_config == {"mode": "none"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--attention-config.bakend", "X"], "has no key 'bakend'; did you mean backend"),
        (["--port.x", "1"], "--port takes no keys"),
        (["--hf-overides.x", "1"], "did you mean --hf-overrides"),
        (["--hf-overrides.x"], "needs a value"),
        (["--hf-overrides.a", "1", "--hf-overrides.a.b", "2"], "a has a value already"),
        (["--hf-overrides.a.", "1"], "empty key"),
        (["--max-num-seqs", "1.5K"], "decimals need a decimal unit"),
        (["--dtype", "bfloat61"], "did you mean bfloat16"),
        (["--all2all-backend", "mori"], "did you mean mori_high_throughput or mori_low_latency"),
        (["--max-num", "3"], "ambiguous"),
        (["a", "b"], "unexpected argument 'b'"),
        (["--served-model-name", "[1"], "no JSON list"),
        (["-dp", "2", "--enable-lora"], "--enable-lora: awaits LoRA adapters"),
        (["-sc.method", "mtp"], '--speculative-config {"method": "mtp"}: awaits speculative decoding'),
        (["--config"], "--config needs a value"),
        (["--color", "pink"], "choose from auto, always, never"),
    ],
)
def test_more_wrong_words(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        serve.parse(words)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_abbreviations_of_vllm_mean_the_same() -> None:
    """What is unambiguous among vLLM's flags stays so, but for the beginnings that octavo's own flags share."""
    names = [line.split()[0] for line in (Path(__file__).parent / "vllm_flags.txt").read_text().splitlines() if not line.startswith("#")]
    known = serve.parser()
    theirs = {s for name in names for s in known._option_string_actions[f"--{name}"].option_strings if s.startswith("--")} - {"--headless"}
    ours = set(actions.known_flags(known)) - theirs
    beginnings = {s[:end] for s in theirs for end in range(5, len(s))}
    lost = {b for b in beginnings if sum(s.startswith(b) for s in theirs) == 1 and any(s.startswith(b) for s in ours)}
    assert lost == {"--col", "--no-g"}  # --color, --no-guard-all-endpoints
