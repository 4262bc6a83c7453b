"""A plan for this machine says what the start-up log says: of `octavo serve` and of LLM, with the same options."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from octavo import environment
from octavo.cli import plan as command
from octavo.config.options import Options
from octavo.frontend.llm import LLM
from octavo.planning import plan as plans
from octavo.planning.hardware import parse
from octavo.planning.plan import Plan
from octavo.planning.topology import Topology
from tests.server.real_server import RealServer

# a share of the memory that even a small machine has; a cache in another format than the weights
OPTIONS: tuple[dict[str, Any], ...] = (
    {"gpu_memory_utilization": 0.12, "max_model_len": 1024, "max_num_seqs": 16, "max_num_batched_tokens": 512},
    {"gpu_memory_utilization": 0.12, "max_model_len": 2048, "max_num_seqs": 8, "kv_cache_dtype": "int8_per_token_head", "block_size": 16},
)


def planned(words: list[str]) -> Plan:
    options, wanted, layout, notes = command.read(words)
    return plans.make(options, parse(wanted.hardware), Topology(**layout), notes=notes)


def words_of(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def check_server(model: Path) -> None:
    words = words_of(OPTIONS[0])
    made = planned([str(model), *words])
    server = RealServer(model, *words).wait_ready()
    try:
        log = server.log
    finally:
        server.close()
        shutil.rmtree(server.folder, ignore_errors=True)
    found = re.search(r"KV cache size: ([\d,]+) tokens, Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x", log)
    assert found is not None, log
    assert found.groups() == (f"{made.cache_tokens:,}", "1,024", f"{made.max_concurrency:.2f}")
    blocks = re.search(r"\((\d+) blocks of (\d+) tokens, (\d+) bytes each", log)
    assert blocks is not None
    assert [int(each) for each in blocks.groups()] == [made.tightest.num_blocks, made.config.cache.block_size, made.tightest.block_bytes]


def check_llm(model: Path) -> None:
    options = OPTIONS[1]
    made = plans.make(Options(model=str(model), **options), parse("cpu"), Topology(), "llm")
    with LLM(str(model), **options) as llm:
        facts = llm.facts
    room = made.tightest
    assert (facts.cache_tokens, facts.max_concurrency) == (made.cache_tokens, made.max_concurrency)
    assert (facts.weights_bytes, facts.arena_bytes, facts.runtime_bytes) == (room.weights_bytes, room.arena_bytes, room.runtime_bytes)
    assert (facts.num_blocks, facts.cache_bytes) == (room.num_blocks, room.cache_bytes)


@pytest.mark.model
def test_smollm2_served(smollm2: Path) -> None:
    check_server(smollm2)


@pytest.mark.model
def test_smollm2_as_llm(smollm2: Path) -> None:
    check_llm(smollm2)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("name", ["Qwen2.5-Coder-0.5B-Instruct", "gemma-3-270m"])
@pytest.mark.parametrize("check", [check_server, check_llm])
def test_other_small_models(name: str, check: Any) -> None:
    folder = environment.test_models()
    if folder is None or not (folder / name / "config.json").is_file():
        pytest.skip(f"OCTAVO_TEST_MODELS has no {name}")
    check(folder / name)
