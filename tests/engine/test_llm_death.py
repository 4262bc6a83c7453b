"""A process of the engine that is killed at any moment: whoever asks next is told, and nobody waits for ever."""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil
import pytest

import octavo
from octavo import LLM, SamplingParams
from octavo.engine.executors.processes import Processes
from octavo.errors import EngineDeadError, MemoryPlanError, OctavoError
from octavo.kvcache.plan import plan_cache
from octavo.protocol.step import StepPlan
from tests.engine.tiny import tiny_config
from tests.script_model import write

OPTIONS: dict[str, Any] = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "kv_cache_memory_bytes": 1 << 20, "cpu_threads": 1}


@pytest.fixture
def model(tmp_path: Path) -> str:
    write(tmp_path, {"o": [" tick", " tock"]}, ends=False)
    return str(tmp_path)


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """What `work` returns or raises; it is a failure if it takes longer."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future.result(seconds)


def kill(pid: int) -> None:
    """Kill a process and wait until it is dead."""
    descriptor = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([descriptor], [], [], 10)[0]
    os.close(descriptor)


def descendant(target: str) -> int:
    """The pid of the engine core (engine.process) or the worker (worker.process) under this process, as soon as it exists."""
    while True:
        for each in psutil.Process().children(recursive=True):
            try:
                if target in each.cmdline():
                    return each.pid
            except psutil.Error:
                continue


@pytest.mark.parametrize("target", ["engine.process", "worker.process"])
def test_a_process_that_dies_before_it_has_said_anything(model: str, target: str) -> None:
    """Its connection has never been made, so nothing may wait for it to be."""
    killer = threading.Thread(target=lambda: os.kill(descendant(target), signal.SIGKILL))
    killer.start()
    kinds: tuple[type[OctavoError], ...] = (MemoryPlanError, EngineDeadError)
    with pytest.raises(kinds, match="was killed by SIGKILL"):
        within(60, lambda: LLM(model, **OPTIONS))
    killer.join()
    assert not psutil.Process().children()


@pytest.mark.parametrize("target", ["engine.process", "worker.process"])
def test_the_next_call_after_a_death_is_told(model: str, target: str) -> None:
    with LLM(model, **OPTIONS) as llm:
        kill(descendant(target))
        for _ in range(2):
            with pytest.raises(EngineDeadError, match="was killed by SIGKILL"):
                within(20, lambda: llm.generate("say o", SamplingParams(max_tokens=9), use_tqdm=False))


def test_a_death_in_the_middle_of_an_answer_is_told(model: str) -> None:
    with LLM(model, max_model_len=1000, **OPTIONS) as llm:
        llm.enqueue("say o", SamplingParams(max_tokens=900))
        kill(llm.facts.worker_pids[0])
        with pytest.raises(EngineDeadError, match="was killed by SIGKILL"):
            within(20, lambda: llm.wait_for_completion(use_tqdm=False))


@pytest.fixture
def executor() -> Iterator[Processes]:
    executor = Processes()
    config = tiny_config()
    facts = executor.start(config)
    executor.initialize_cache(plan_cache(facts.states, config.cache.block_size, 1 << 20))
    yield executor
    executor.shutdown()


def test_a_step_for_a_dead_worker_is_taken_and_its_result_is_the_death(executor: Processes) -> None:
    kill(descendant("worker.process"))

    def submit() -> None:
        for step in range(200):  # long enough for the library to see that the connection is gone
            executor.submit(StepPlan(step))
            threading.Event().wait(0.001)

    within(20, submit)
    with pytest.raises(EngineDeadError, match="was killed by SIGKILL"):
        executor.collect(10)


SCRIPT = """
import sys
import octavo
from octavo import LLM, SamplingParams
llm = LLM(sys.argv[1], max_num_seqs=4, max_num_batched_tokens=64, kv_cache_memory_bytes=1 << 20, cpu_threads=1)
print(repr(llm.generate("say o", SamplingParams(temperature=0, max_tokens=3), use_tqdm=False)[0].outputs[0].text))
sys.exit(int(sys.argv[2]))
"""


def test_a_script_needs_no_guard_and_no_close(model: str, tmp_path: Path) -> None:
    """It ends with the status it wants, and takes its processes and their sockets with it."""
    script, folder = tmp_path / "script.py", Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    script.write_text(SCRIPT)
    variables = os.environ | {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder), "PYTHONPATH": str(Path(octavo.__file__).parent.parent)}
    try:
        done = subprocess.run([sys.executable, script, model, "3"], env=variables, capture_output=True, text=True, timeout=100)
        assert (done.returncode, done.stdout) == (3, "' tick tock tick'\n"), done.stderr
        assert [path for path in folder.rglob("*") if path.is_file()] == []
        assert "Traceback" not in done.stderr
    finally:
        shutil.rmtree(folder)
