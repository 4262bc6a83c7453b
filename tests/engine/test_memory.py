"""The ledger: each plan that cannot be is refused early, and the remedy that the error names works."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import octavo
from octavo.errors import MemoryPlanError
from octavo.worker.memory import GIB, Ledger, Reservation, is_out_of_memory, loading_error

MIB = 1024**2


class FakeDevice:
    kind, label, description, threads = "cpu", "CPU", "a device of 16 GiB", 1
    runtime_bytes = 0

    def __init__(self, available: float, used: float = 0.25) -> None:
        self.available, self.used = available, used

    def total_bytes(self) -> int:
        return 16 * GIB

    def available_bytes(self) -> int:
        return int(self.available * GIB)

    def used_bytes(self) -> int:
        return int(self.used * GIB)

    def allocate(self, size_bytes: int) -> torch.Tensor:
        return torch.zeros(size_bytes, dtype=torch.uint8)

    def refuses_dtype(self, dtype: torch.dtype) -> str | None:
        return None

    def synchronize(self) -> None:
        """Nothing runs."""


def ledger(available: float, utilization: float, tmp_path: Path, cache: float | None = None, used: float = 0.25) -> Ledger:
    return Ledger(FakeDevice(available, used), utilization, None if cache is None else int(cache * GIB), Reservation(tmp_path / "told"))


def test_what_remains_is_the_cache(tmp_path: Path) -> None:
    books = ledger(12, 0.5, tmp_path)
    books.check_device()
    books.check_sizes(2 * GIB, 1 * GIB, MIB)
    books._device.used = 3.75  # type: ignore[attr-defined]
    books.close_books()
    assert books.runtime_bytes == 0.75 * GIB
    assert books.cache_budget_bytes == (8 - 3.75) * GIB


def test_a_busy_device_is_refused_and_what_the_hint_says_fits(tmp_path: Path) -> None:
    with pytest.raises(MemoryPlanError, match=r"Free memory on device CPU \(6\.25/16\.00 GiB\) .* \(0\.5, 8\.00 GiB\)") as caught:
        ledger(6, 0.5, tmp_path).check_device()
    assert caught.value.hint is not None
    assert "lower --gpu-memory-utilization" in caught.value.hint
    fits = re.search(r"at most (0\.\d+)", caught.value.hint)
    assert fits is not None
    ledger(6, float(fits[1]), tmp_path).check_device()


def test_weights_larger_than_the_budget_are_refused_before_they_are_read(tmp_path: Path) -> None:
    books = ledger(12, 0.25, tmp_path)
    books.check_device()
    with pytest.raises(MemoryPlanError, match=r"No available memory for the cache: weights 3\.50 GiB, arena 0\.50 GiB") as caught:
        books.check_sizes(int(3.5 * GIB), GIB // 2, MIB)
    assert caught.value.hint is not None
    raised = re.search(r"raise --gpu-memory-utilization to at least (0\.\d+)", caught.value.hint)
    assert raised is not None
    books = ledger(12, float(raised[1]), tmp_path)
    books.check_sizes(int(3.5 * GIB), GIB // 2, MIB)
    assert books.cache_budget_bytes > 0


def test_the_remedy_reckons_with_the_cache_and_with_what_loading_adds(tmp_path: Path) -> None:
    with pytest.raises(MemoryPlanError) as caught:
        ledger(12, 0.25, tmp_path).check_sizes(4 * GIB, GIB // 2, 2 * GIB)
    raised = re.search(r"raise --gpu-memory-utilization to at least (0\.\d+)", caught.value.hint or "")
    assert raised is not None
    books = ledger(12, float(raised[1]), tmp_path)
    books.check_device()
    books.check_sizes(4 * GIB, GIB // 2, 2 * GIB)
    books._device.used = 4.5 + 0.25 + 0.1  # type: ignore[attr-defined]
    books.close_books()
    assert 2 * GIB <= books.cache_budget_bytes < 2.4 * GIB


def test_a_share_that_is_not_free_now_asks_for_more_than_a_flag(tmp_path: Path) -> None:
    with pytest.raises(MemoryPlanError) as caught:
        ledger(6, 0.25, tmp_path).check_sizes(8 * GIB, GIB // 2, MIB)
    assert (caught.value.hint or "").startswith(
        "stop other processes that use the memory and raise --gpu-memory-utilization to at least 0.5"
    )


def test_weights_larger_than_the_machine_have_no_such_remedy(tmp_path: Path) -> None:
    with pytest.raises(MemoryPlanError) as caught:
        ledger(12, 0.5, tmp_path).check_sizes(20 * GIB, GIB, MIB)
    assert caught.value.hint == "choose a smaller model or a machine with more memory"


def test_a_cache_of_a_given_size_must_fit_in_what_is_free(tmp_path: Path) -> None:
    books = ledger(6, 0.9, tmp_path, cache=8)
    books.check_device()  # utilization is not asked
    with pytest.raises(MemoryPlanError, match="--kv-cache-memory-bytes") as caught:
        books.check_sizes(GIB, GIB, MIB)
    assert caught.value.hint is not None
    fits = re.search(r"at most (\d+)", caught.value.hint)
    assert fits is not None
    books = Ledger(FakeDevice(6), 0.9, int(fits[1]), Reservation(tmp_path / "told"))
    books.check_sizes(GIB, GIB, MIB)
    assert books.cache_budget_bytes == int(fits[1])


def test_what_another_instance_was_promised_is_not_free(tmp_path: Path) -> None:
    first = ledger(14, 0.5, tmp_path)
    first.check_device()
    with pytest.raises(MemoryPlanError, match="promised to other octavo instances") as caught:
        ledger(14, 0.5, tmp_path).check_device()
    assert "or stop the other processes" in str(caught.value)
    ledger(14, 0.3, tmp_path).check_device()


def test_a_released_reservation_leaves_nothing(tmp_path: Path) -> None:
    mine = Reservation(tmp_path / "told")
    mine.take(5 * GIB)
    mine.take(4 * GIB)
    other = Reservation(tmp_path / "told")
    assert 3 * GIB < other.promised_bytes() <= 4 * GIB
    assert mine.promised_bytes() == 0
    mine.release()
    mine.release()
    assert other.promised_bytes() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_killed_instance_promises_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\n"
        "from octavo.worker.memory import Reservation\n"
        "mine = Reservation(pathlib.Path(sys.argv[1])); mine.take(1 << 40)\n"
        "print('taken', flush=True); sys.stdin.read()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(octavo.__file__).parent.parent)}
    command = [sys.executable, "-c", script, str(tmp_path / "told")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "taken\n"
        assert Reservation(tmp_path / "told").promised_bytes() > 1 << 39
        other.send_signal(signal.SIGKILL)
    assert Reservation(tmp_path / "told").promised_bytes() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_promise_counts_only_from_the_process_that_makes_it(tmp_path: Path) -> None:
    """Another user could bind any name."""
    mine, other = Reservation(tmp_path / "told"), Reservation(tmp_path / "told")
    mine.take(5 * GIB)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as forged:
        forged.bind(f"\0{other._prefix}{os.getppid()}/{1 << 40}/0")
        assert other.promised_bytes() <= 5 * GIB
        assert [pid for pid, _ in other._others()] == [os.getpid()]
    mine.release()
    assert other.promised_bytes() == 0


def test_torchs_own_words_for_no_memory_are_understood(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shapes differ"))
    error = loading_error(caught.value, ledger(6, 0.5, tmp_path))
    assert error.fact.startswith("out of memory while loading the model")
    assert error.hint is not None
