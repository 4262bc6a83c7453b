"""Options and variables that change what the engine does, seen on the script model through the whole engine."""

import json
import logging
import os
from pathlib import Path

import psutil
import pytest

from octavo import LLM, SamplingParams, environment
from octavo.errors import ConfigError
from tests.script_model import write

CONTEXT = 128
SMALL = {"dtype": "float32", "kv_cache_memory_bytes": 4 * 2**20, "max_num_seqs": 4, "max_num_batched_tokens": 64}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("script")
    write(made, {"p": ["plain", " words"], "o": [" tick", " tock"]}, loops="o", context=CONTEXT)
    return made


@pytest.fixture(autouse=True)
def _one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_ENABLE_V1_MULTIPROCESSING", "0")


def _said(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("layout", ["rope_scaling", "rope_parameters"])
def test_yarn_by_hf_overrides_extends_the_context(layout: str, folder: Path) -> None:
    prompt = "x" * (2 * CONTEXT) + "p"
    with LLM(str(folder), **SMALL) as llm, pytest.raises(ValueError, match="128"):
        llm.generate(prompt, SamplingParams(max_tokens=2), use_tqdm=False)
    theta = {"rope_theta": 10000.0} if layout == "rope_parameters" else {}
    yarn = {"rope_type": "yarn", "factor": 2.5, "original_max_position_embeddings": CONTEXT, **theta}
    with LLM(str(folder), hf_overrides={layout: yarn}, **SMALL) as llm:
        assert llm.facts.max_model_len == 320
        [output] = llm.generate(prompt, SamplingParams(max_tokens=2), use_tqdm=False)
    assert output.outputs[0].text == "plain words"


def test_what_is_accepted_and_what_decides_is_logged(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = json.loads((folder / "config.json").read_text()) | {"max_position_embeddings": 96}
    (tmp_path / "config.json").write_text(json.dumps(other))
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "0.01")
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    monkeypatch.setenv("OCTAVO_NO_SUCH_THING", "1")
    small = {k: v for k, v in SMALL.items() if k != "kv_cache_memory_bytes"}
    with (
        caplog.at_level(logging.INFO, logger="octavo"),
        LLM(
            str(folder),
            hf_config_path=str(tmp_path),
            trust_remote_code=True,
            enforce_eager=True,
            enable_logging_iteration_details=True,
            tokenizer_mode="glm5_next",
            load_format="hf",
            attention_config={"backend": "TORCH_SDPA"},
            **small,
        ) as llm,
    ):
        assert llm.facts.max_model_len == 96
        assert llm.facts.cache_bytes <= 0.01 * 2**30
        assert any("TORCH_SDPA" in choice for choice in llm.facts.choices.values())
        llm.generate(["xxo", "yo"], SamplingParams(max_tokens=3), use_tqdm=False)
    text = _said(caplog)
    for what in (
        "not the model's own: --hf-config-path",
        "trust_remote_code: accepted, and nothing is run",
        "no tapes, steps run kernel by kernel: --enforce-eager",
        "VLLM_CPU_KVCACHE_SPACE is read, as OCTAVO_CPU_KVCACHE_SPACE would be",
        "kv_cache_memory_bytes = 10737418: OCTAVO_CPU_KVCACHE_SPACE is 0.01 GiB",
        "VLLM_BATCH_INVARIANT: octavo's results never depend",
        "OCTAVO_NO_SUCH_THING: octavo does not have such a variable",
        "requests compute 3 tokens of their prompts, 0 generate, ",
        "0 requests compute 0 tokens of their prompts, 2 generate, ",
    ):
        assert what in text
    with pytest.raises(ConfigError, match="OCTAVO_NO_SUCH_THING"):
        LLM(str(folder), fail_on_environ_validation=True, **SMALL)


def test_fewer_requests_run_than_the_worker_has_room_for(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = SMALL | {"max_num_active_seqs": 2, "max_num_scheduled_tokens": 8, "enable_logging_iteration_details": True}
    with caplog.at_level(logging.INFO, logger="octavo"), LLM(str(folder), **options) as llm:
        outputs = llm.generate(["a" * 20 + "o"] * 4, SamplingParams(max_tokens=4), use_tqdm=False)
    assert {o.outputs[0].text for o in outputs} == {" tick tock tick tock"}
    steps = [r.getMessage().split() for r in caplog.records if r.getMessage().startswith("step ")]
    assert steps
    for words in steps:  # step N: P requests compute T tokens of their prompts, G generate, ...
        prompts, tokens, generating = int(words[2]), int(words[5]), int(words[10])
        assert prompts + generating <= 2
        assert tokens + generating <= 8


def test_processes_have_names_and_the_cores_that_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = max(os.sched_getaffinity(0))
    monkeypatch.delenv("OCTAVO_ENABLE_V1_MULTIPROCESSING")
    monkeypatch.setenv("OCTAVO_CPU_OMP_THREADS_BIND", str(core))
    monkeypatch.setenv("OCTAVO_PROCESS_NAME_PREFIX", "mine")
    monkeypatch.setenv("OCTAVO_RPC_BASE_PATH", str(folder))
    with LLM(str(folder), **SMALL) as llm:
        assert psutil.Process(llm.facts.core_pid).name() == "mine-core"
        [worker] = llm.facts.worker_pids
        assert psutil.Process(worker).name() == "mine-worker"
        assert any(os.sched_getaffinity(int(t.name)) == {core} for t in Path(f"/proc/{worker}/task").iterdir())
        assert [p for p in folder.iterdir() if p.name.startswith("octavo-")]
        [output] = llm.generate("p", SamplingParams(max_tokens=2), use_tqdm=False)
        assert output.outputs[0].text == "plain words"
    assert environment.socket_root() == folder


def test_cores_that_cannot_be(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value, said in (("4000", "may not use core 4000"), ("x", "names no cores"), ("3-1", "names no cores")):
        monkeypatch.setenv("OCTAVO_CPU_OMP_THREADS_BIND", value)
        with pytest.raises(ConfigError, match=said):
            LLM(str(folder), **SMALL)
    monkeypatch.setenv("OCTAVO_CPU_OMP_THREADS_BIND", "auto")
    monkeypatch.setenv("OCTAVO_CPU_NUM_OF_RESERVED_CPU", "4000")
    with pytest.raises(ConfigError, match="leaves none of"):
        LLM(str(folder), **SMALL)
