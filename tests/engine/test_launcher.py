"""Children: they live as long as they should and no longer, however the end comes."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import octavo
from octavo.engine import launcher
from octavo.errors import EngineDeadError, MemoryPlanError

# a target for octavo.engine.child that says that it runs and then waits for ever
SLEEPER = "engine.child_for_tests"


@pytest.fixture
def sleeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `octavo.worker.process` in children a module that touches a file and waits, by a package that extends octavo's."""
    code = (
        "import pathlib, signal, sys, threading\n"
        "def main(arguments):\n"
        "    if arguments[1:] == ['raise']:\n"
        "        raise RuntimeError('as told')\n"
        "    pathlib.Path(arguments[0]).touch()\n"
        "    sys.stdout.write('up\\n'); sys.stdout.flush()\n"
        "    while True:\n"
        "        signal.pause()\n"
    )
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import importlib.machinery, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'octavo.{SLEEPER}':\n"
        f"            return importlib.util.spec_from_file_location(name, {str(site / 'sleeper.py')!r})\n"
        "import importlib.util\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    (site / "sleeper.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(site))


def wait_for_end(pid: int, timeout_s: float = 10) -> None:
    """Until the process is gone, whoever its parent was."""
    descriptor = os.pidfd_open(pid)
    try:
        assert select.select([descriptor], [], [], timeout_s)[0], f"process {pid} is still there"
    finally:
        os.close(descriptor)


def wait_for_file(path: Path, child: launcher.Child) -> None:
    while not path.exists():
        assert child.is_alive(), child.death()
        select.select([child.life], [], [], 0.02)


def test_a_killed_child_is_seen_at_once_and_named(sleeper: None, tmp_path: Path) -> None:
    directory = launcher.socket_directory()
    child = launcher.launch("sleeper", SLEEPER, [str(tmp_path / "up")], directory)
    try:
        wait_for_file(tmp_path / "up", child)
        assert os.getpgid(child.pid) == child.pid
        assert not select.select([child.life], [], [], 0)[0]
        os.kill(child.pid, signal.SIGKILL)
        assert select.select([child.life], [], [], 1.0)[0]
        assert child.death() == f"the sleeper process {child.pid} was killed by SIGKILL"
        assert isinstance(child.start_error(), MemoryPlanError)
    finally:
        child.close()
        launcher.remove_directory(directory)


def test_a_child_that_fails_ends_with_a_status(sleeper: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory = launcher.socket_directory()
    child = launcher.launch("sleeper", SLEEPER, [str(tmp_path / "up"), "raise"], directory)
    try:
        assert select.select([child.life], [], [], 30)[0]
        assert child.death().endswith("ended with exit status 1")
        assert isinstance(child.start_error(), EngineDeadError)
        assert "as told" in capfd.readouterr().err
    finally:
        child.close()
        launcher.remove_directory(directory)


def test_a_child_that_does_not_end_is_killed(sleeper: None, tmp_path: Path) -> None:
    directory = launcher.socket_directory()
    child = launcher.launch("sleeper", SLEEPER, [str(tmp_path / "up")], directory)
    wait_for_file(tmp_path / "up", child)
    child.close(grace=0.01)
    child.close()
    assert not child.is_alive()
    launcher.remove_directory(directory)


def test_a_signal_from_outside_does_not_end_a_child_and_its_parent_does(sleeper: None, tmp_path: Path) -> None:
    """A service manager sends SIGTERM to every process of a service; the parent then still needs its children."""
    directory = launcher.socket_directory()
    child = launcher.launch("sleeper", SLEEPER, [str(tmp_path / "up")], directory)
    try:
        wait_for_file(tmp_path / "up", child)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            os.kill(child.pid, number)
        assert not select.select([child.life], [], [], 1.5)[0]
        child.terminate()
        assert select.select([child.life], [], [], 5.0)[0]
        assert child.death().endswith(f"ended with exit status {128 + signal.SIGTERM}")
    finally:
        child.close()
    assert directory.exists()  # the parent lives, and may need it
    launcher.remove_directory(directory)


def test_a_child_that_stands_still_is_killed_and_one_that_does_not_is_left(
    sleeper: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "PULSE_S", 0.05)
    directory = launcher.socket_directory()
    child = launcher.launch("sleeper", SLEEPER, [str(tmp_path / "up")], directory)
    try:
        wait_for_file(tmp_path / "up", child)
        child.watch(1.0)
        assert not select.select([child.life], [], [], 1.5)[0]
        os.kill(child.pid, signal.SIGSTOP)
        assert select.select([child.life], [], [], 10)[0]
        assert child.death().endswith("was killed by SIGKILL")
    finally:
        child.close()
        launcher.remove_directory(directory)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_follows_its_parent_and_takes_the_folder_with_it(sleeper: None, tmp_path: Path, number: signal.Signals) -> None:
    script = (
        "import sys, pathlib\n"
        "from octavo.engine import launcher\n"
        "directory = launcher.socket_directory()\n"
        "def bequeath(name):\n"
        "    launcher.bequeath(pathlib.Path(name), pathlib.Path(name).stat().st_ino)\n"
        "early, replaced, late = sys.argv[2:]\n"
        "bequeath(early)\n"
        "bequeath(replaced)\n"
        "pathlib.Path(replaced).rename(replaced + '.old'); pathlib.Path(replaced).touch()\n"
        f"child = launcher.launch('sleeper', {SLEEPER!r}, [sys.argv[1]], directory)\n"
        "bequeath(late)\n"
        "print(child.pid, directory, flush=True)\n"
        "child.life.recv(1)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(octavo.__file__).parent.parent), os.environ["PYTHONPATH"]])}
    mine, replaced, late = tmp_path / "mine", tmp_path / "replaced", tmp_path / "late"
    for path in (mine, replaced, late):
        path.touch()
    command = [sys.executable, "-c", script, str(tmp_path / "up"), str(mine), str(replaced), str(late)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) as parent:
        assert parent.stdout is not None
        pid, directory = parent.stdout.readline().split()
        assert parent.stdout.readline() == "up\n"  # the child writes to the same pipe
        assert Path(directory).exists()
        assert Path(directory).stat().st_mode & 0o777 == 0o700
        parent.send_signal(number)
    wait_for_end(int(pid))
    assert not Path(directory).exists()
    assert not mine.exists()
    assert not late.exists()
    assert replaced.exists()  # it is another file by now
