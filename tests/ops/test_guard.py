"""Guard pages: one element too far is a fault, in either direction; what is inside is not."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.ops import guard

_TOUCH = """
import ctypes, sys, torch
from tests.ops import guard
tensor = guard.empty(5, 3, dtype=torch.float32, ends=sys.argv[1] == "end")
tensor.fill_(1)
past = tensor.data_ptr() + (tensor.numel() * 4 if sys.argv[1] == "end" else -4)
inside = past - 4 if sys.argv[1] == "end" else past + 4
print(ctypes.c_float.from_address(inside).value, flush=True)
print(ctypes.c_float.from_address(past).value, flush=True)
"""


@pytest.mark.parametrize("side", ["end", "start"])
def test_one_past_is_a_fault(side: str) -> None:
    done = subprocess.run([sys.executable, "-c", _TOUCH, side], cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.stdout == "1.0\n"
    assert done.returncode == -signal.SIGSEGV


def test_copies_are_equal_and_contiguous() -> None:
    source = torch.arange(35.0).view(5, 7).t()
    for ends in (True, False):
        assert torch.equal(guard.copy(source, ends), source)
        assert guard.copy(source, ends).is_contiguous()
    assert guard.empty(0, 4, dtype=torch.bfloat16).shape == (0, 4)
