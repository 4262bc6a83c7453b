"""Online formats: a plain checkpoint is quantized while it is loaded; each number is within half a step of what it was."""

from pathlib import Path

import pytest
import torch

from octavo.loading.build import build_meta
from tests.models.driver import Driver
from tests.quant.checkpoints import TOKENS, Written, configured, weights_of, write

# scheme -> the largest difference from a weight, in parts of the largest number that shares its scale
STEPS = {"fp8_per_tensor": 1 / 28, "fp8_per_block": 1 / 28, "int8_per_channel_weight_only": 0.5 / 127, "int4": 2 * 0.52 / 15}
STEPS |= {"mxfp8": 1 / 14, "nvfp4": 1.05 / 6, "bitsandbytes": 0.16}


@pytest.fixture
def plain(tmp_path: Path) -> Written:
    return write(tmp_path, lambda path, weight: None, None)


@pytest.mark.parametrize("scheme", STEPS)
def test_numbers_are_near_and_logits_those_of_the_reference(plain: Written, scheme: str) -> None:
    ours = Driver(configured(plain.folder, scheme))
    coded = weights_of(ours.model)
    assert len(coded) == 14
    for path, numbers in coded.items():
        whole = plain.numbers[path]
        assert (numbers - whole).abs().max() <= STEPS[scheme] * whole.abs().max(), path
        assert not torch.equal(numbers, whole)
    slow = Driver(configured(plain.folder, scheme, mode="reference"))
    logits = ours.step([(ours.sequence(), TOKENS)])[0]
    torch.testing.assert_close(logits, slow.step([(slow.sequence(), TOKENS)])[0], atol=1e-4, rtol=1e-4)
    assert build_meta(ours.config).weights_bytes == ours.built.weights_bytes


@pytest.mark.parametrize("scheme", STEPS)
def test_weights_are_not_kept_wide(plain: Written, scheme: str) -> None:
    """Codes, scales and what stays plain: no more."""
    bits = 4 if scheme in ("int4", "nvfp4", "bitsandbytes") else 8
    coded, whole = (Driver(configured(plain.folder, name)).built.weights_bytes for name in (scheme, None))
    linear = sum(numbers.numel() for path, numbers in plain.numbers.items() if "embed" not in path and "lm_head" not in path)
    saved = linear * (32 - bits) / 8
    assert whole - coded > 0.94 * saved
