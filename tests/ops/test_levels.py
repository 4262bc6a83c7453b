"""Each narrower kind of CPU: this folder's other tests once more, in a process whose kernels are compiled for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.ops.cpu import features
from octavo.ops.order import ORDER
from tests.ops.conftest import FLAG

FOLDER = Path(__file__).parent
LEVELS = {"haswell": "avx2", "generic": "plain", "skylake-avx512": "avx512"}
_WIDTH = ("plain", "avx2", "avx512", "avx512bf16")
_NARROWER = [name for name, level in LEVELS.items() if _WIDTH.index(level) < _WIDTH.index(features.level())]
_HERE_ONLY = ("test_levels.py", "test_guard.py", "test_compile.py")  # what no level changes


@pytest.mark.timeout(3600)  # a machine that compiles everything for the first time, and has other work
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n.startswith("skylake") else n for n in _NARROWER])
def test_level(name: str) -> None:
    """The cases and checks are the same ones: nothing is known here about any op."""
    check(name, FLAG)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", _NARROWER)
def test_level_whole(name: str) -> None:
    check(name)


def check(name: str, *flags: str) -> None:
    ignored = [f"--ignore={FOLDER / file}" for file in _HERE_ONLY]
    chosen = ["-m", "not oracle and not slow", "-p", "no:cacheprovider", *ignored, *flags]
    command = [sys.executable, "-m", "pytest", str(FOLDER), "-q", "-x", *chosen]
    done = subprocess.run(command, env=os.environ | {"NUMBA_CPU_NAME": name}, cwd=FOLDER.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_every_op_in_the_order_is_tested() -> None:
    missing = [op for ops in ORDER.values() for op in ops if not (FOLDER / f"test_{op}.py").exists()]
    assert not missing
