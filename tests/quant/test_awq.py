"""AWQ checkpoints, packed here word by word as AutoAWQ's packer does it."""

from pathlib import Path

import pytest
import torch

from octavo.errors import ConfigError
from octavo.loading.build import bare
from tests.quant.checkpoints import Encode, check, check_cuts, configured, write

GROUP = 32
ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
CONFIG = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}


def pack(values: torch.Tensor) -> torch.Tensor:
    """Integers [n, m] as int32 [n, m / 8]."""
    words = torch.zeros(values.shape[0], values.shape[1] // 8, dtype=torch.int64)
    for column in range(words.shape[1]):
        for place, number in enumerate(ORDER):
            words[:, column] |= values[:, column * 8 + number].long() << (place * 4)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def encoder(group: int) -> Encode:
    def encode(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        rows, columns = weight.shape
        groups = weight.view(rows, columns // group, group)
        low, high = groups.amin(-1), groups.amax(-1)
        scales = ((high - low) / 15).half()
        zeros = (-low / scales.float()).round().clamp(0, 15)
        codes = (groups / scales.float()[..., None] + zeros[..., None]).round().clamp(0, 15)
        numbers = (codes - zeros[..., None]) * scales.float()[..., None]
        stored = {"qweight": pack(codes.view(rows, columns).t()), "qzeros": pack(zeros.t()), "scales": scales.t()}
        return stored, numbers.view(rows, columns)

    return encode


encode = encoder(GROUP)


def test_numbers_and_logits(tmp_path: Path) -> None:
    check(write(tmp_path, encode, CONFIG), "awq", num_coded=14)


def test_cuts(tmp_path: Path) -> None:
    check_cuts(write(tmp_path, encode, CONFIG), "awq")


def test_experts(tmp_path: Path) -> None:
    check(write(tmp_path, encode, CONFIG, "mixtral"), "awq")


@pytest.mark.parametrize("changes", [{"bits": 8}, {"version": "gemv"}])
def test_other_kinds_are_refused_by_name(tmp_path: Path, changes: dict[str, object]) -> None:
    written = write(tmp_path, encode, CONFIG | changes)
    with pytest.raises(ConfigError, match="octavo reads awq of 4 bits in version gemm"):
        bare(configured(written.folder, "awq"))


def test_scales_of_another_format_are_kept_as_they_are(tmp_path: Path) -> None:
    """bfloat16 has a range that float16 has not."""

    def wide(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        stored, numbers = encode(path, weight)
        scales = (stored["scales"].float() * 2.0**-12).to(torch.bfloat16)
        codes = (numbers.view(*numbers.shape[:1], -1, GROUP) / stored["scales"].t().float()[..., None]).round()
        return stored | {"scales": scales}, (codes * scales.t().float()[..., None]).view(numbers.shape)

    check_cuts(write(tmp_path, wide, CONFIG), "awq")
