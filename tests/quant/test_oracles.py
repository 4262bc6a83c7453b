"""What other projects wrote is read as they read it, whole and in the pieces of 2 and of 4 ranks."""

import contextlib
from pathlib import Path

import pytest
import torch

from octavo.errors import ConfigError
from octavo.parallel.cut import Cut
from tests.quant.oracles import Case, Written, cases

# the oracle divides by a scale where octavo multiplies by its inverse: the last bit of float32 may differ
LAST_BIT = {"nvfp4-pack-quantized": 2.0**-23}


@pytest.mark.parametrize("case", cases(), ids=str)
def test_numbers(case: Case, tmp_path: Path) -> None:
    numbers = Written(tmp_path, case).numbers()
    torch.testing.assert_close(numbers, case.numbers, rtol=LAST_BIT.get(case.name, 0.0), atol=0.0)


@pytest.mark.parametrize("case", cases(), ids=str)
def test_cuts(case: Case, tmp_path: Path) -> None:
    """Where a cut would fall into what shares a number it is refused, before anything is read."""
    written = Written(tmp_path, case)
    whole, done = written.numbers(), 0
    for axis, extent in enumerate(case.shape):
        for size in (2, 4):
            for rank in range(size):
                length = extent // size
                with contextlib.suppress(ConfigError):
                    piece = written.numbers(Cut(axis, rank * length, length))
                    assert torch.equal(piece, whole.narrow(axis, rank * length, length))
                    done += 1
    assert done >= 6
