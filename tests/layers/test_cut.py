"""A layer cut in two is the whole layer: its ranks' outputs side by side, or summed."""

import pytest
import torch
from torch import nn

from octavo.device.arena import Arena
from octavo.errors import ConfigError
from octavo.layers.choices import Choices
from octavo.layers.linear import FusedLinear, Linear, Part
from octavo.layers.mlp import GatedMLP
from octavo.layers.moe import MoE
from octavo.layers.stored import Stored, stored_parameters
from octavo.loading.finish import finish
from octavo.loading.quantize import quantize
from octavo.loading.shard import shard
from octavo.parallel.cut import Cut, Group, cut, even
from octavo.quant.format import Source
from octavo.quant.schemes.unquantized import Scheme
from tests.tolerances import ATOL, RTOL

HIDDEN, TOKENS = 24, 5
PARTS = (Part("q_proj", 32, 4, "attention heads"), Part("k_proj", 16, 2, "kv heads"), Part("v_proj", 16, 2, "kv heads"))


def disk(stored: Stored) -> torch.Tensor:
    """The whole tensor that a checkpoint has under that path: the same whoever asks."""
    seed = sum(ord(letter) * place for place, letter in enumerate(stored.path, 1))
    return torch.randn(stored.shape, generator=torch.Generator().manual_seed(seed)) * 0.2


def ready(layer: nn.Module, group: Group, mode: str) -> nn.Module:
    shard(layer, group)
    quantize(layer, Scheme(Source(torch.float32)), torch.device("cpu"), "layer")
    for stored in stored_parameters(layer, "layer"):
        whole = disk(stored)
        piece = whole if stored.cut is None else whole.narrow(stored.cut.axis, stored.cut.start, stored.cut.length)
        stored.target.copy_(piece)
    finish(layer, Choices(torch.float32, mode=mode))
    return layer


def x() -> torch.Tensor:
    return torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(9))


def arena() -> Arena:
    return Arena(torch.empty(1 << 20, dtype=torch.uint8))


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=ATOL["float32"], rtol=RTOL["float32"])


@pytest.mark.parametrize("mode", ["fast", "reference"])
def test_outputs_of_a_fused_product_stand_side_by_side(mode: str) -> None:
    def run(group: Group) -> list[torch.Tensor]:
        layer = ready(FusedLinear(HIDDEN, parts=PARTS, bias=True), group, mode)
        out = torch.empty(TOKENS, layer.out_size)
        layer(out, x())
        return list(out.split([part.size // group.size for part in PARTS], dim=1))

    whole, first, second = run(Group()), run(Group(0, 2)), run(Group(1, 2))
    for part in range(3):
        close(torch.cat((first[part], second[part]), 1), whole[part])


@pytest.mark.parametrize("mode", ["fast", "reference"])
def test_halves_of_an_input_sum_up_and_the_bias_counts_once(mode: str) -> None:
    def run(group: Group) -> torch.Tensor:
        layer = ready(Linear(HIDDEN, 20, bias=True, cut_inputs="attention heads", num_cuttable=4), group, mode)
        out = torch.empty(TOKENS, 20)
        layer(out, x()[:, group.rank * layer.in_size : (group.rank + 1) * layer.in_size])
        return out

    close(run(Group(0, 2)) + run(Group(1, 2)), run(Group()))


@pytest.mark.parametrize("mode", ["fast", "reference"])
def test_halves_of_a_feed_forward_sum_up(mode: str) -> None:
    def run(group: Group) -> torch.Tensor:
        layer = ready(GatedMLP(HIDDEN, 40, "silu", bias=True), group, mode)
        out = torch.empty(TOKENS, HIDDEN)
        layer(out, x(), arena())
        return out

    close(run(Group(0, 2)) + run(Group(1, 2)), run(Group()))


@pytest.mark.parametrize("mode", ["fast", "reference"])
def test_halves_of_a_mixture_sum_up(mode: str) -> None:
    def run(group: Group) -> torch.Tensor:
        names = ("gate_proj", "up_proj", "down_proj")
        layer = ready(MoE(HIDDEN, 40, num_experts=4, num_chosen=2, expert_names=names), group, mode)
        out = torch.empty(TOKENS, HIDDEN)
        layer(out, x(), arena())
        return out

    close(run(Group(0, 2)) + run(Group(1, 2)), run(Group()))


def test_what_cannot_be_shared_evenly_says_what_can() -> None:
    with pytest.raises(ConfigError) as caught:
        even(8, Group(0, 3), "kv heads")
    assert str(caught.value) == "tensor parallel size 3 does not divide 8 kv heads\nhint: use 1, 2, 4 or 8"
    with pytest.raises(ConfigError, match="size 4 does not divide 2 kv heads"):
        shard(FusedLinear(HIDDEN, parts=PARTS), Group(0, 4))


def test_cuts_are_of_whole_heads() -> None:
    layer = FusedLinear(HIDDEN, parts=PARTS)
    shard(layer, Group(1, 2))
    quantize(layer, Scheme(Source(torch.float32)), torch.device("meta"), "attn.qkv")
    found = {stored.path: (stored.shape, stored.cut) for stored in stored_parameters(layer, "attn.qkv")}
    assert found == {
        "attn.q_proj.weight": ((32, HIDDEN), Cut(0, 16, 16)),
        "attn.k_proj.weight": ((16, HIDDEN), Cut(0, 8, 8)),
        "attn.v_proj.weight": ((16, HIDDEN), Cut(0, 8, 8)),
    }
    assert cut(0, 8, Group()) is None
