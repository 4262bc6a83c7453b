"""Proofs: for each number format, whose bytes it is held against, how far octavo is from them, and what a parameter takes; all measured."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from octavo.ops import gguf_blocks
from octavo.ops.linear import INT8, INT8_GROUP, Activation, Facts
from octavo.ops.op import choose
from octavo.ops.weights import decode
from octavo.quant import online
from octavo.quant.format import Filled, Format
from tests.loading.test_gguf_formats import SIZES, random_blocks
from tests.quant import test_awq, test_fp8, test_gptq, test_int8_activations
from tests.quant.checkpoints import Encode
from tests.quant.fixtures.make_others import weight as fixed_weight
from tests.quant.oracles import FIXTURES, PATH, Case, Written, cases

SIDE = 4096  # of the weight whose bytes are counted
ROWS, COLUMNS = 256, 256  # of the weights that are packed here


@dataclass(frozen=True, slots=True)
class Proof:
    """difference: the largest, in parts of a number; of products, in parts of the largest. bytes_per_parameter: scales included."""

    method: str
    name: str
    oracle: str
    difference: float
    bytes_per_parameter: float


def checkpoints() -> Iterator[Proof]:
    """What is read of checkpoints: weights that other projects wrote, and those that the tests pack from a specification."""
    with tempfile.TemporaryDirectory() as folder:
        for case in (*cases(), *_packed()):
            written = Written(Path(folder) / str(case), case)
            yield _proof(case, written.numbers(), written.format)
    yield _gpt_oss()


def made_while_loading() -> Iterator[Proof]:
    """What octavo makes of plain numbers, against what others make of the same ones, or what the definition says."""
    for name, made in online.BY_NAME.items():
        plain, numbers, oracle = _made_elsewhere(name)
        layout, tensors = made(Filled("w", (len(plain),), plain.shape[1], {"weight": plain}), plain)
        yield Proof("", name, oracle, largest_difference(decode(layout, tensors, *plain.shape), numbers), _online_bytes(made))


def activations() -> Iterator[Proof]:
    """W8A8: products of int8 codes with int8 codes, against those of the same codes in float64."""
    stored = load_file(FIXTURES / "activations" / "int8_static.safetensors")
    x, weight = stored["x"], (stored["codes"].view(torch.uint8), stored["weight_scale"], stored["input_scale"])
    yield _product("int8_static", x, weight, stored["product"].double(), "compressed-tensors' fake quantization")
    x, plain = torch.randn(2, ROWS, COLUMNS, generator=torch.Generator().manual_seed(4))
    tensors, numbers = test_int8_activations.encode("", plain)
    coded = (tensors["weight"].view(torch.uint8), tensors["weight_scale"])
    kinds: tuple[tuple[Activation, int], ...] = (("int8_token", COLUMNS), ("int8_group", INT8_GROUP))
    for activation, group in kinds:
        parts = x.double().unflatten(1, (-1, group))
        scales = parts.abs().amax(-1, keepdim=True) / 127
        rounded = ((parts / scales).round() * scales).flatten(1)
        yield _product(activation, x, coded, rounded @ numbers.double().t(), "its definition, in float64")


def gguf() -> Iterator[Proof]:
    """Blocks of any bits, against the gguf package's reading of them."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    for name, (count, size) in gguf_blocks.SIZES.items():
        if count == 1 or name not in gguf_blocks.FORMATS:
            continue
        blocks = random_blocks(name, 64, seed=5)
        with np.errstate(invalid="ignore", over="ignore"):
            theirs = torch.from_numpy(dequantize(blocks, GGMLQuantizationType[name]))
        ours = gguf_blocks.widen(torch.from_numpy(blocks), name)
        finite = theirs.isfinite()
        assert torch.equal(finite, ours.isfinite())
        yield Proof("gguf", name, "the gguf package", largest_difference(ours[finite], theirs[finite]), size / SIZES[name][0])
        assert count == SIZES[name][0]


def largest_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float(((ours - theirs).abs() / theirs.abs().clamp(min=1e-30)).max())


def _proof(case: Case, numbers: torch.Tensor, format: Format) -> Proof:
    method = case.config["quant_method"] if case.scheme != "deepseek_v4_fp8" else "fp8 (deepseek_v4)"
    return Proof(method, case.name, case.oracle, largest_difference(numbers, case.numbers), _stored_bytes(format))


def _packed() -> Iterator[Case]:
    """By the routines that stand in the tests, which share nothing with octavo's readers."""
    sizes = {"group_size": 128}
    awq = ("4 bits, groups of 128", "awq", test_awq.encoder(128), test_awq.CONFIG | sizes, test_awq)
    gptq = (
        (f"{bits} bits, groups of 128", "gptq", test_gptq.encoder(bits, group=128), test_gptq.config(bits, **sizes), test_gptq)
        for bits in (2, 3, 4, 8)
    )
    blocked = test_fp8.BLOCKED | {"weight_block_size": [128, 128]}
    fp8: tuple[tuple[str, str, Encode, dict[str, Any], Any], ...] = (
        ("tensor", "fp8", test_fp8.per_tensor, test_fp8.STATIC, test_fp8),
        ("blocks of 128 x 128", "fp8", lambda path, weight: test_fp8.blocks(path, weight, size=128), blocked, test_fp8),
        ("blocks of 128 x 128, powers of two", "fp8", lambda path, weight: test_fp8.blocks(path, weight, True, 128), blocked, test_fp8),
    )
    for name, of_scheme, encode, config, module in (awq, *gptq, *fp8):
        plain = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(len(name)))
        made = encode(PATH, plain)
        assert made is not None
        test = f"tests/quant/{Path(module.__file__ or '').name}"
        yield Case(name, of_scheme, f"its specification, bit by bit in {test}", config, *made)


def _gpt_oss() -> Proof:
    """One expert's down projection, by itself as the format of experts lays it out."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    generator = torch.Generator().manual_seed(7)
    blocks = torch.randint(0, 256, (1, ROWS, COLUMNS // 32, 16), dtype=torch.uint8, generator=generator)
    scales = torch.randint(118, 126, (1, ROWS, COLUMNS // 32), dtype=torch.uint8, generator=generator)
    numbers = convert_moe_packed_tensors(blocks, scales.clone(), dtype=torch.float32)[0].t()
    case = Case(
        "gpt-oss experts", "gpt_oss_mxfp4", "transformers", {"quant_method": "mxfp4"}, {"blocks": blocks[0], "scales": scales[0]}, numbers
    )
    with tempfile.TemporaryDirectory() as folder:
        written = Written(Path(folder), case)
        return _proof(case, written.numbers(), written.format)


def _made_elsewhere(name: str) -> tuple[torch.Tensor, torch.Tensor, str]:
    """(plain numbers, what is made of them elsewhere, where)."""
    fixtures = {
        "bitsandbytes": ("bitsandbytes", "nf4-blocks-of-64", 0),
        "nvfp4": ("modelopt", "nvfp4", 20),
        "mxfp8": ("modelopt", "mxfp8", 21),
    }
    if name in fixtures:
        of_scheme, case_name, seed = fixtures[name]
        case = next(case for case in cases() if (case.scheme, case.name) == (of_scheme, case_name))
        return fixed_weight(seed), case.numbers, case.oracle
    definitions: dict[str, Callable[[str, torch.Tensor], tuple[dict[str, torch.Tensor], torch.Tensor]]] = {
        "fp8_per_tensor": test_fp8.per_tensor,
        "fp8_per_block": lambda path, weight: test_fp8.blocks(path, weight, size=128),
        "int8_per_channel_weight_only": test_int8_activations.encode,
        "int4": _int4,
    }
    plain = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(len(name)))
    return plain, definitions[name]("", plain)[1], "its definition, written again in the tests"


def _int4(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Of each 32 numbers the least is 0 and the largest 15; least and step are kept in bfloat16."""
    numbers = torch.empty_like(weight)
    for start in range(0, weight.shape[1], 32):
        group = weight[:, start : start + 32]
        least = group.min(1, keepdim=True).values.bfloat16().float()
        step = ((group.max(1, keepdim=True).values - least) / 15).bfloat16().float()
        numbers[:, start : start + 32] = ((group - least) / step).round().clamp(0, 15) * step + least
    return {}, numbers


def _product(activation: Activation, x: torch.Tensor, weight: tuple[torch.Tensor, ...], exact: torch.Tensor, oracle: str) -> Proof:
    rows, columns = weight[0].shape
    facts = Facts(in_features=columns, out_features=rows, dtype=torch.float32, layout=INT8, activation=activation)
    implementation = choose("linear", facts).implementation
    out = torch.empty(len(x), rows)
    implementation(out, x, implementation.pack(weight, facts))
    # a scale for each row, and one for the whole weight's inputs
    taken = (SIDE**2 + SIDE * 4 + (4 if activation == "int8_static" else 0)) / SIDE**2
    return Proof("W8A8", activation, oracle, float((out - exact).abs().max() / exact.abs().max()), taken)


def _stored_bytes(format: Format) -> float:
    """A parameter's share of what is stored for a weight."""
    shapes = ((field.shape(SIDE, SIDE, (SIDE, SIDE)), field.dtype.itemsize) for field in format.fields)
    return sum(prod(shape) * size for shape, size in shapes) / SIDE**2


def _online_bytes(made: online.Quantize) -> float:
    plain = torch.empty(SIDE, SIDE, dtype=torch.bfloat16, device="meta")
    _, tensors = made(Filled("", (SIDE,), SIDE, {"weight": plain}), plain)
    return sum(tensor.numel() * tensor.dtype.itemsize for tensor in tensors) / SIDE**2
