"""GPTQ checkpoints of every width, packed here bit by bit, in both formats of zeros, with and without an order of the columns."""

from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.errors import CheckpointError
from tests.models.driver import Driver
from tests.quant.checkpoints import Encode, check, check_cuts, configured, write

GROUP = 32


def pack(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Integers [n, m] as int32 [n * bits / 32, m]: down the columns, the lowest bit first."""
    words = torch.zeros(values.shape[0] * bits // 32, values.shape[1], dtype=torch.int64)
    for row in range(values.shape[0]):
        for bit in range(bits):
            place = row * bits + bit
            words[place // 32] |= ((values[row].long() >> bit) & 1) << (place % 32)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def config(bits: int, **changes: Any) -> dict[str, Any]:
    return {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": GROUP,
        "desc_act": False,
        "sym": False,
        "checkpoint_format": "gptq",
    } | changes


def encoder(
    bits: int, *, group: int = GROUP, stored_less: int = 1, order: torch.Generator | None = None, symmetric: bool = False
) -> Encode:
    def encode(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        rows, columns = weight.shape
        size = columns if group < 0 else group
        index = torch.arange(columns) // size
        if order is not None:
            index = index[torch.randperm(columns, generator=order)]
        most = 2**bits - 1
        scales, zeros = torch.empty(columns // size, rows), torch.empty(columns // size, rows)
        codes = torch.empty(columns, rows)
        for number in range(columns // size):
            inside = weight[:, index == number]
            low, high = inside.amin(1), inside.amax(1)
            if symmetric:
                high = torch.maximum(high, -low)
                low = -high
            scales[number] = ((high - low) / most).half().float()
            zeros[number] = 2 ** (bits - 1) if symmetric else (-low / scales[number]).round().clamp(1, most)
            codes[index == number] = (inside / scales[number][:, None] + zeros[number][:, None]).round().clamp(0, most).t()
        numbers = ((codes - zeros[index]) * scales[index]).t()
        stored = {
            "qweight": pack(codes, bits),
            "qzeros": pack((zeros - stored_less).t(), bits).t(),
            "scales": scales.half(),
            "g_idx": index.to(torch.int32),
        }
        return stored, numbers

    return encode


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_every_width(tmp_path: Path, bits: int) -> None:
    check(write(tmp_path, encoder(bits), config(bits)), "gptq", num_coded=14)


def test_cuts_of_words_that_numbers_cross(tmp_path: Path) -> None:
    check_cuts(write(tmp_path, encoder(3), config(3)), "gptq")


def test_order_of_columns(tmp_path: Path) -> None:
    """Every layer has an order of its own; so the parts of a fused one cannot lie together."""
    written = write(tmp_path, encoder(4, order=torch.Generator().manual_seed(1)), config(4, desc_act=True))
    check(written, "gptq", num_coded=14)
    check_cuts(written, "gptq")


def test_second_format_symmetric_and_one_group(tmp_path: Path) -> None:
    encode = encoder(4, group=-1, stored_less=0, symmetric=True)
    check(write(tmp_path, encode, config(4, group_size=-1, checkpoint_format="gptq_v2", sym=True)), "gptq")


def test_rules_by_layer(tmp_path: Path) -> None:
    four, eight = encoder(4), encoder(8)

    def encode(path: str, weight: torch.Tensor) -> Any:
        if "o_proj" in path:
            return None
        return eight(path, weight) if "down_proj" in path else four(path, weight)

    rules = {r"-:.*o_proj": {}, r"+:.*down_proj": {"bits": 8}}
    check(write(tmp_path, encode, config(4, dynamic=rules)), "gptq", num_coded=12)


def test_an_order_that_the_config_denies_is_found(tmp_path: Path) -> None:
    written = write(tmp_path, encoder(4, order=torch.Generator().manual_seed(1)), config(4))
    with pytest.raises(CheckpointError, match="desc_act"):
        Driver(configured(written.folder, "gptq"))
