"""The engine in processes: equal to the engine in one, and gone without a trace whichever way it ends."""

import asyncio
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from octavo.config.config import Config
from octavo.engine.client import AsyncEngineClient, EngineClient
from octavo.errors import EngineDeadError, MemoryPlanError, OctavoError, UnsupportedModelError
from octavo.protocol.messages import EngineFacts, FinishReason
from tests.engine.tiny import LLAMA, Answer, generate, prompt, request, tiny_config


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of its own, with a short name, for everything that the engine puts into one, children included."""
    folder = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    _into(folder, monkeypatch)
    yield folder
    shutil.rmtree(folder)


def _into(folder: Path, patch: pytest.MonkeyPatch) -> None:
    for name in ("TMPDIR", "XDG_RUNTIME_DIR"):
        patch.setenv(name, str(folder))
    patch.setattr(tempfile, "tempdir", None)


def in_processes(**changes: Any) -> Config:
    return tiny_config(executor="processes", core_in_process=False, **changes)


def left_over(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*")]


def wait_for_end(*pids: int, timeout_s: float = 15) -> None:
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([descriptor], [], [], timeout_s)[0], f"process {pid} is still there"
        finally:
            os.close(descriptor)


@pytest.fixture(scope="class")
def engine() -> Iterator[tuple[EngineClient, EngineFacts]]:
    """An engine for a few tests; in the end nothing of it is left."""
    client, folder = EngineClient(), Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        _into(folder, patch)
        facts = client.start(in_processes())
    yield client, facts
    client.shutdown()
    wait_for_end(facts.core_pid, *facts.worker_pids)
    assert left_over(folder) == []
    assert not psutil.Process().children()
    shutil.rmtree(folder)


def work() -> list[Any]:
    return [
        request("greedy", prompt(1, 40), logprobs=3),
        request("seeded", prompt(2, 3), temperature=1.0, seed=11, max_tokens=20, logprobs=0),
        request("told", prompt(3, 60), prompt_logprobs=2, max_tokens=3),
        request("one", [5], max_tokens=1),
    ]


def answers_in(config: Config) -> dict[str, Answer]:
    client = EngineClient()
    client.start(config)
    try:
        return generate(client, work())
    finally:
        client.shutdown()


class TestInProcesses:
    def test_processes_and_threads_give_equal_answers(self, engine: tuple[EngineClient, EngineFacts]) -> None:
        client, facts = engine
        assert len({os.getpid(), facts.core_pid, *facts.worker_pids}) == 3
        alone = answers_in(tiny_config())
        assert generate(client, work()) == alone
        assert answers_in(tiny_config(executor="processes")) == alone
        assert len(alone["seeded"].tokens) == 20 == len(alone["seeded"].logprobs)
        assert alone["greedy"].finish is FinishReason.LENGTH
        assert sorted(alone["told"].prompt_logprobs) == list(range(1, 60))

    def test_calls_reach_the_core_and_the_worker_between_steps(self, engine: tuple[EngineClient, EngineFacts]) -> None:
        client, facts = engine
        assert client.call("ping") is True
        client.add(request("long", prompt(4, 30), max_tokens=200))
        report = client.call("worker", "memory_report")
        assert report["cache_bytes"] == facts.cache_bytes
        with pytest.raises(OctavoError, match="no method 'nonsense'"):
            client.call("worker", "nonsense")
        with pytest.raises(OctavoError, match="no method 'nonsense'"):
            client.call("nonsense")
        tokens: list[int] = []
        while (outputs := client.outputs(60)) is not None:
            tokens += [token for output in outputs.outputs for token in output.token_ids]
            if any(output.finish_reason is not None for output in outputs.outputs):
                break
        assert len(tokens) == 200

    def test_a_request_that_cannot_be_read_is_answered(self, engine: tuple[EngineClient, EngineFacts]) -> None:
        client, _ = engine
        wrong = request("wrong", prompt(5, 20))
        assert wrong.sampling is not None
        wrong.sampling.max_tokens = -5  # as if the front end had not checked it
        answers = generate(client, [wrong, request("right", prompt(6, 20))])
        assert answers["wrong"].finish is FinishReason.ERROR
        assert "max_tokens" in (answers["wrong"].error or "")
        assert len(answers["right"].tokens) == 8

    def test_an_aborted_request_ends_and_the_others_go_on(self, engine: tuple[EngineClient, EngineFacts]) -> None:
        client, _ = engine
        both = [request("abandoned", prompt(5, 20), max_tokens=230), request("kept", prompt(6, 20))]
        answers = generate(client, both, aborted=["abandoned", "unknown"])
        assert answers["abandoned"].finish is FinishReason.ABORT
        assert len(answers["abandoned"].tokens) < 230
        assert answers["kept"].finish is FinishReason.LENGTH
        assert len(answers["kept"].tokens) == 8


def read_for_ever(client: EngineClient) -> None:
    while True:
        client.outputs(10)


@pytest.mark.parametrize("victim", ["core", "worker"])
def test_a_killed_process_is_told_within_a_second_and_nothing_is_left(folders: Path, victim: str) -> None:
    client = EngineClient()
    facts = client.start(in_processes())
    client.add(request("long", prompt(4, 30), max_tokens=220))
    assert client.outputs(60) is not None
    pid = facts.core_pid if victim == "core" else facts.worker_pids[0]
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    with pytest.raises(EngineDeadError, match=rf"process {pid} was killed by SIGKILL"):
        read_for_ever(client)
    assert time.monotonic() - killed < 1.0
    with pytest.raises(EngineDeadError):
        client.add(request("late", [5]))
    assert not client.is_alive
    wait_for_end(facts.core_pid, *facts.worker_pids)
    client.shutdown()
    assert left_over(folders) == []


FRONT_END = """
import sys
from octavo.engine.client import EngineClient
from tests.engine.tiny import prompt, request, tiny_config
client = EngineClient()
facts = client.start(tiny_config(executor="processes", core_in_process=False))
client.add(request("long", prompt(4, 30), max_tokens=220))
client.outputs(60)
print(facts.core_pid, *facts.worker_pids, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_end_of_the_front_end_is_the_end_of_all(folders: Path, number: signal.Signals) -> None:
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", FRONT_END]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as front:
        assert front.stdout is not None
        pids = [int(pid) for pid in front.stdout.readline().split()]
        assert len(pids) == 2
        front.send_signal(number)
    wait_for_end(*pids)
    assert left_over(folders) == []


@pytest.mark.parametrize(("executor", "core_in_process"), [("in_process", True), ("processes", False)])
def test_an_error_at_the_start_keeps_its_class_and_leaves_nothing(folders: Path, executor: str, core_in_process: bool) -> None:
    where = {"executor": executor, "core_in_process": core_in_process}
    wrong = {
        UnsupportedModelError: tiny_config(**where, hf_config={**LLAMA, "some_new_attention": "sparse"}),
        MemoryPlanError: tiny_config(**where, memory_bytes=1 << 50),
    }
    for error, config in wrong.items():
        client = EngineClient()
        with pytest.raises(error) as caught:
            client.start(config)
        assert type(caught.value) is error
        assert caught.value.hint
        client.shutdown()
    assert left_over(folders) == []
    assert not psutil.Process().children()


def test_a_worker_that_is_too_slow_is_given_up(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_ENGINE_READY_TIMEOUT_S", "0.05")
    client = EngineClient()
    with pytest.raises(EngineDeadError, match=r"not ready after 0\.05 s") as caught:
        client.start(in_processes())
    assert "OCTAVO_ENGINE_READY_TIMEOUT_S" in str(caught.value)
    assert left_over(folders) == []
    assert not psutil.Process().children()


async def test_the_client_for_an_event_loop(folders: Path) -> None:
    client = AsyncEngineClient()
    facts = await client.start(in_processes())
    answer = Answer()
    await client.add(request("one", prompt(7, 12), max_tokens=5))
    calling = asyncio.create_task(client.call("ping"))
    while answer.finish is None:
        for output in (await client.outputs()).outputs:
            answer.take(output)
    assert len(answer.tokens) == 5
    assert await calling is True
    with pytest.raises(OctavoError, match="no method"):
        await client.call("nonsense")
    assert client.is_alive
    await client.shutdown()
    await client.shutdown()
    with pytest.raises(EngineDeadError):
        await client.outputs()
    assert not client.dead.is_set()
    wait_for_end(facts.core_pid, *facts.worker_pids)
    assert left_over(folders) == []


async def test_the_event_loop_learns_of_the_death(folders: Path) -> None:
    client = AsyncEngineClient()
    facts = await client.start(in_processes())
    waiting = asyncio.create_task(client.outputs())
    os.kill(facts.worker_pids[0], signal.SIGKILL)
    async with asyncio.timeout(2):
        await client.dead.wait()
    with pytest.raises(EngineDeadError, match="SIGKILL"):
        await waiting
    with pytest.raises(EngineDeadError, match="SIGKILL"):
        await client.call("ping")
    assert client.death is not None
    await client.shutdown()
    wait_for_end(facts.core_pid, *facts.worker_pids)
    assert left_over(folders) == []


async def test_the_event_loop_can_have_the_core_on_a_thread() -> None:
    client = AsyncEngineClient()
    await client.start(tiny_config())
    await client.add(request("one", prompt(7, 12), max_tokens=5))
    tokens: list[int] = []
    while len(tokens) < 5:
        for output in (await client.outputs()).outputs:
            tokens += output.token_ids
    await client.shutdown()
