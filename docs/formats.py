"""The page of number formats: each with whose bytes prove it, how far octavo's reading is from theirs, and what a parameter takes."""

import tempfile
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import torch

from octavo.loading.quantize import scheme
from octavo.ops import gguf_blocks
from octavo.quant import online
from octavo.quant.format import Filled, Format, Source
from tests.quant.oracles import PATH, Written, cases

SIDE = 4096  # of the weight whose bytes are counted
_BLOCKS = {name for name, (count, _) in gguf_blocks.SIZES.items() if count > 1 and name in gguf_blocks.FORMATS}
_PACKED_HERE = "its specification, bit by bit in {}"
# what a test packs itself: name, scheme, quantization_config, what its headers say, the test
_OWN: tuple[tuple[str, str, dict[str, Any], dict[str, str], str], ...] = (
    ("tensor", "fp8", {"quant_method": "fp8"}, {}, "test_fp8.py"),
    ("blocks of 128 x 128", "fp8", {"quant_method": "fp8", "weight_block_size": [128, 128]}, {}, "test_fp8.py"),
    (
        "blocks of 128 x 128, powers of two",
        "fp8",
        {"quant_method": "fp8", "weight_block_size": [128, 128]},
        {"weight_scale_inv": "F8_E8M0"},
        "test_fp8.py",
    ),
    ("4 bits, groups of 128", "awq", {"quant_method": "awq", "bits": 4, "group_size": 128}, {}, "test_awq.py"),
    *(
        (
            f"{bits} bits, groups of 128",
            "gptq",
            {"quant_method": "gptq", "bits": bits, "group_size": 128, "desc_act": False},
            {},
            "test_gptq.py",
        )
        for bits in (2, 3, 4, 8)
    ),
    ("gpt-oss experts", "mxfp4", {"quant_method": "mxfp4"}, {"blocks": "U8"}, "test_layouts.py"),
)


def formats_page() -> str:
    lines = [
        "# Number formats",
        "",
        "Weights stay in memory as they lie in the checkpoint; nothing is widened before it is multiplied. For each format: who wrote the",
        "bytes that prove it, or from what they were written; the largest difference, in parts of a number, between what octavo reads in",
        f"them and what their makers read; and what a parameter of a {SIDE} x {SIDE} weight takes, scales included.",
        "",
        "The last bit of nvfp4-pack-quantized differs because its makers divide by a scale where octavo multiplies by the inverse.",
        "",
        "## Checkpoints",
        "",
        "| quant_method | format | proven by | largest difference | bytes a parameter |",
        "|---|---|---|---|---|",
        *sorted(_checkpoints()),
        "",
        "## GGUF",
        "",
        "Proven by the gguf package's reading of its own and llama.cpp's blocks.",
        "",
        "| type | bytes a parameter |",
        "|---|---|",
        *(
            f"| {name} | {_number(size / count)} |"
            for name, (count, size) in gguf_blocks.SIZES.items()
            if count > 1 and name in gguf_blocks.FORMATS
        ),
        "",
        "## Made while a plain checkpoint is loaded",
        "",
        "`--quantization NAME`, or by layer with `--quantization-config`: its keys `linear` and `moe` name what layers and experts become",
        '(`{"weight": "nvfp4"}`), `targets` does so by name or pattern, `ignore` lists what stays plain, and `group_size` is that of int4.',
        "Embeddings, heads and routers stay plain.",
        "",
        "| name | bytes a parameter |",
        "|---|---|",
        *(f"| `{name}` | {_number(_online_bytes(made))} |" for name, made in online.BY_NAME.items()),
        "",
        "Not read, and refused by name: what torch.save pickled, torchao's layouts for one kernel of a GPU, sparse compressed-tensors,",
        "checkpoints that scale activations before a weight (`pre_quant_scale`), and caches of other formats than 8 bit floats and nvfp4.",
    ]
    return "\n".join(lines) + "\n"


def _checkpoints() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            written = Written(Path(folder) / str(case), case)
            numbers = written.numbers()
            difference = float(((numbers - case.numbers).abs() / case.numbers.abs().clamp(min=1e-30)).max())
            method = case.config["quant_method"] if case.scheme != "deepseek_v4_fp8" else "fp8 (deepseek_v4)"
            told = "0" if difference == 0 else f"{difference:.1e}"
            yield f"| {method} | {case.name} | {case.oracle} | {told} | {_number(_stored_bytes(written.format))} |"
    for name, of_scheme, config, headers, test in _OWN:
        source = Source(torch.bfloat16, config, lambda path, headers=headers: headers.get(path.removeprefix(f"{PATH}.")))
        format = scheme(of_scheme, source).weight(PATH, "linear")
        proof = "transformers, in tests/quant/test_layouts.py" if test == "test_layouts.py" else _PACKED_HERE.format(f"tests/quant/{test}")
        yield f"| {config['quant_method']} | {name} | {proof} | 0 | {_number(_stored_bytes(format))} |"


def _stored_bytes(format: Format) -> float:
    """A parameter's share of what is stored for a weight."""
    shapes = ((field.shape(SIDE, SIDE, (SIDE, SIDE)), field.dtype.itemsize) for field in format.fields)
    return sum(prod(shape) * size for shape, size in shapes) / SIDE**2


def _online_bytes(made: online.Quantize) -> float:
    plain = torch.empty(SIDE, SIDE, dtype=torch.bfloat16, device="meta")
    _, tensors = made(Filled("", (SIDE,), SIDE, {"weight": plain}), plain)
    return sum(tensor.numel() * tensor.dtype.itemsize for tensor in tensors) / SIDE**2


def _number(value: float) -> str:
    return f"{value:.4f}"
