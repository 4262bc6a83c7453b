"""Memory of the host: buffers are huge-page aligned, zero and lazy, and every kind of limit is found."""

from pathlib import Path

import pytest

from octavo.config import machine as facts
from octavo.device import memory

MIB = 1024**2


@pytest.mark.parametrize("size", [0, 1, 4096, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 64 * MIB])
def test_a_buffer_has_its_size_and_is_zero(size: int) -> None:
    buffer = memory.allocate(size)
    assert buffer.numel() == size
    assert not buffer.any()
    if size >= memory.HUGE_PAGE:
        assert buffer.data_ptr() % memory.HUGE_PAGE == 0


def test_a_buffer_becomes_resident_when_touched_and_goes_with_its_last_view() -> None:
    before = memory.rss_anon_bytes()
    buffer = memory.allocate(256 * MIB)
    assert memory.rss_anon_bytes() - before < 16 * MIB
    buffer.fill_(1)
    assert memory.rss_anon_bytes() - before > 250 * MIB
    view = buffer[100:200]
    del buffer
    assert memory.rss_anon_bytes() - before > 250 * MIB
    assert view.sum() == 100
    del view
    assert memory.rss_anon_bytes() - before < 16 * MIB


def test_a_mapping_that_the_system_refuses_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="refuses a mapping"):
        memory.allocate(1 << 60)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:    8192 kB\n")
    return tmp_path


def _cgroup(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_without_a_cgroup_the_machine_counts(machine: Path) -> None:
    assert facts.total_bytes(machine) == 16 * MIB
    assert facts.available_bytes(machine) == 8 * MIB


def test_a_limit_of_version_2_counts_and_page_cache_in_it_is_free(machine: Path) -> None:
    (machine / "proc/self/cgroup").write_text("0::/a/b\n")
    _cgroup(
        machine / "sys/fs/cgroup/a/b", memory__max=f"{6 * MIB}\n", memory__current=f"{5 * MIB}\n", memory__stat=f"inactive_file {2 * MIB}\n"
    )
    assert facts.total_bytes(machine) == 6 * MIB
    assert facts.available_bytes(machine) == 3 * MIB


def test_the_limit_of_a_parent_counts_too(machine: Path) -> None:
    (machine / "proc/self/cgroup").write_text("0::/a/b\n")
    _cgroup(machine / "sys/fs/cgroup/a/b", memory__max="max\n", memory__current="1\n", memory__stat="inactive_file 0\n")
    _cgroup(machine / "sys/fs/cgroup/a", memory__max=f"{2 * MIB}\n", memory__current=f"{MIB}\n", memory__stat="inactive_file 0\n")
    assert facts.total_bytes(machine) == 2 * MIB
    assert facts.available_bytes(machine) == MIB


def test_a_limit_of_version_1_counts_and_its_huge_number_means_none(machine: Path) -> None:
    (machine / "proc/self/cgroup").write_text("3:cpu:/x\n4:cpuset,memory:/box\n")
    files = {"memory__usage_in_bytes": f"{MIB}\n", "memory__stat": "total_inactive_file 0\n"}
    _cgroup(machine / "sys/fs/cgroup/memory/box", memory__limit_in_bytes=f"{4 * MIB}\n", **files)
    _cgroup(machine / "sys/fs/cgroup/memory", memory__limit_in_bytes="9223372036854771712\n", **files)
    assert facts.total_bytes(machine) == 4 * MIB
    assert facts.available_bytes(machine) == 3 * MIB


def test_a_folder_mounted_from_outside_is_found_at_the_base(machine: Path) -> None:
    (machine / "proc/self/cgroup").write_text("0::/docker/0123\n")
    _cgroup(machine / "sys/fs/cgroup", memory__max=f"{MIB}\n", memory__current=f"{2 * MIB}\n", memory__stat="inactive_file 0\n")
    assert facts.total_bytes(machine) == MIB
    assert facts.available_bytes(machine) == 0
