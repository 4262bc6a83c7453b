"""The page of number formats: each with whose bytes prove it, how far octavo's reading is from theirs, and what a parameter takes."""

import math
from collections.abc import Iterable

from tests.quant import proofs
from tests.quant.proofs import SIDE, Proof

# how W8A8's inputs are coded, by the name in octavo/ops/linear.py
_INPUTS = {
    "int8_static": "one scale that the checkpoint has",
    "int8_token": "a scale for each token (`--quantization int8_token`, compressed-tensors)",
    "int8_group": "a scale for each 64 numbers of a token (`--quantization int8`, compressed-tensors)",
}


def formats_page() -> str:
    lines = [
        "# Number formats",
        "",
        "Weights stay in memory as they lie in the checkpoint; nothing is widened before it is multiplied. For each format: who wrote the",
        "bytes that prove it, or from what they were written; the largest difference, in parts of a number, between what octavo reads in",
        f"them and what their makers read; and what a parameter of a {SIDE} x {SIDE} weight takes, scales included. The figures",
        "are what `tests/quant/proofs.py` measures while this page is made, and `tests/quant/test_proofs.py` holds them there.",
        "Which to take, and what they come to on real models: [number formats](../number-formats.md).",
        "",
        "The last bit of nvfp4-pack-quantized differs because its makers divide by a scale where octavo multiplies by the inverse.",
        "",
        "## Checkpoints",
        "",
        *_table("quant_method", proofs.checkpoints(), is_sorted=True),
        "",
        "## GGUF",
        "",
        "Blocks of random bits, in which every extreme scale occurs.",
        "",
        *_table("", proofs.gguf()),
        "",
        "## Made while a plain checkpoint is loaded",
        "",
        "`--quantization NAME`, or by layer with `--quantization-config`: its keys `linear` and `moe` name what layers and experts become",
        '(`{"weight": "nvfp4"}`), `targets` does so by name or pattern, `ignore` lists what stays plain, and `group_size` is that of int4.',
        "Embeddings, heads and routers stay plain.",
        "",
        *_table("", proofs.made_while_loading()),
        "",
        "## W8A8: activations in int8 too",
        "",
        "Weights are int8 with a scale for each row; the inputs of a product are coded in int8 just before it. The difference is that of a",
        "product, in parts of the largest one.",
        "",
        "| inputs | proven by | largest difference | bytes a parameter |",
        "|---|---|---|---|",
        *(
            f"| {_INPUTS[row.name]} | {row.oracle} | {_bound(row.difference)} | {row.bytes_per_parameter:.4f} |"
            for row in proofs.activations()
        ),
        "",
        "Not read, and refused by name: what torch.save pickled, torchao's layouts for one kernel of a GPU, sparse compressed-tensors,",
        "checkpoints that scale activations before a weight (`pre_quant_scale`), and caches of other formats than 8 bit floats and nvfp4.",
    ]
    return "\n".join(lines) + "\n"


def _table(first: str, rows: Iterable[Proof], is_sorted: bool = False) -> list[str]:
    """first: the title of the column of methods, empty: there is none."""
    lines = []
    for row in rows:
        told = "0" if row.difference == 0 else f"{row.difference:.1e}"
        cells = [row.method] if first else []
        cells += [row.name if first else f"`{row.name}`", row.oracle, told, f"{row.bytes_per_parameter:.4f}"]
        lines.append(f"| {' | '.join(cells)} |")
    titles = [*([first] if first else []), "format", "proven by", "largest difference", "bytes a parameter"]
    return [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|", *(sorted(lines) if is_sorted else lines)]


def _bound(difference: float) -> str:
    """A power of ten, with room: the last bits of a sum are those of the machine's instructions."""
    return f"below 1e{math.ceil(math.log10(3 * difference))}"
