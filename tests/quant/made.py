"""Weights in the formats that no file of fixtures has, packed as the tests of each format pack them: a Case of every scheme there is."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from tests.quant import test_awq, test_compressed_tensors, test_fp8, test_gptq, test_int8_activations
from tests.quant.checkpoints import Encode
from tests.quant.oracles import PATH, Case, cases

ONLINE = ("fp8_per_tensor", "fp8_per_block", "int8", "int8_token", "int8_per_channel_weight_only", "int4", "mxfp8", "nvfp4", "bitsandbytes")


def _weight() -> torch.Tensor:
    return torch.randn(32, 128, generator=torch.Generator().manual_seed(4)) * 0.1


def _case(name: str, scheme: str, config: dict[str, Any], encode: Encode) -> Case:
    encoded = encode(PATH, _weight())
    assert encoded is not None
    stored, numbers = encoded
    return Case(name, scheme, "its specification", config, {key: tensor.contiguous() for key, tensor in stored.items()}, numbers)


def _torchao_int4(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(11)
    codes = torch.randint(-8, 8, (32, 128), dtype=torch.int8, generator=generator)
    scales, zeros = torch.rand(2, 4, 32, generator=generator).to(torch.bfloat16)
    stored = {"_weight_qdata": codes[:, ::2] & 15 | codes[:, 1::2] << 4, "_weight_scale": scales, "_weight_zero_point": zeros}
    wide_scales, wide_zeros = (each.float().t().repeat_interleave(32, 1) for each in (scales, zeros))
    return stored, codes * wide_scales + wide_zeros


def _mxfp4(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(12)
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    codes = torch.randint(0, 16, (32, 4, 32), dtype=torch.uint8, generator=generator)
    scales = torch.randint(120, 130, (32, 4), dtype=torch.uint8, generator=generator)
    numbers = table[codes.long()] * torch.exp2(scales.float() - 127)[..., None]
    return {"blocks": codes[..., ::2] | codes[..., 1::2] << 4, "scales": scales}, numbers.reshape(32, 128)


def _order(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@cache
def made() -> tuple[Case, ...]:
    """One of each."""
    ct, act = test_compressed_tensors, test_int8_activations
    makers: list[tuple[str, str, dict[str, Any], Encode | Callable[..., Any]]] = [
        ("awq", "awq", test_awq.CONFIG, test_awq.encode),
        ("gptq", "gptq", test_gptq.config(4), test_gptq.encoder(4)),
        ("gptq-ordered", "gptq", test_gptq.config(3, desc_act=True), test_gptq.encoder(3, order=_order(1))),
        ("per-tensor", "fp8", test_fp8.STATIC, test_fp8.per_tensor),
        ("blocks", "fp8", test_fp8.BLOCKED, test_fp8.blocks),
        ("ue8m0", "fp8", test_fp8.BLOCKED, test_fp8.ue8m0),
        ("ordered", "compressed_tensors", ct.config(ct.group(["Linear"], actorder="group")), ct.packed(_order(3))),
        ("w8a8-token", "compressed_tensors", act.DYNAMIC, act.encode),
        ("w8a8-group", "compressed_tensors", act.GROUPED, act.encode),
        ("w8a8-static", "compressed_tensors", act.STATIC, act.encode_static),
        ("int4", "torchao", {"quant_method": "torchao"}, _torchao_int4),
        ("mxfp4", "mxfp4", {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, _mxfp4),
    ]
    return tuple(_case(name, scheme, config, encode) for name, scheme, config, encode in makers)


@cache
def online() -> tuple[Case, ...]:
    """A plain weight, for every scheme that is made while it is loaded."""
    return tuple(Case("plain", scheme, "itself", {}, {"weight": _weight()}, _weight()) for scheme in ONLINE)


def one_of_each() -> tuple[Case, ...]:
    """Of every scheme that checkpoints are in, one for each set of tensors and shape of scales."""
    written = {(case.scheme, case.name.split("-")[0], len(case.stored)): case for case in cases()}
    return (*written.values(), *made())
