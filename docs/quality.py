"""The page of measured quality: perplexity, size and memory of models in each number format, from the result files in docs/measured."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# what stands after a model's = -> what it is
_WHAT = {
    "": "bfloat16",
    "int8": "W8A8, a scale for each 64 inputs",
    "int8_token": "W8A8, a scale for each token",
    "fp8_per_tensor": "fp8",
    "fp8_per_block": "fp8 in blocks of 128 x 128",
    "int8_per_channel_weight_only": "int8 weights",
    "int4": "int4 weights in groups of 32",
    "kv:fp8": "bfloat16, cache in fp8",
    "kv:fp8_per_token_head": "bfloat16, cache in fp8 by token and head",
    "kv:int8_per_token_head": "bfloat16, cache in int8",
    "kv:int4_per_token_head": "bfloat16, cache in int4",
    "llama.cpp": "the same file in llama.cpp",
}


def quality_page() -> str:
    lines = [
        "# Quality, measured",
        "",
        "Perplexity of Shakespeare's works in windows of 512 tokens, by `octavo bench quality`; each row beside its distance from",
        "bfloat16 over as many tokens. Memory is that of the weights. [How to repeat it](../number-formats.md#what-it-costs). GGUF files",
        "hold the weights of the folder, quantized by llama.cpp; Q4_K is its Q4_K_M, which gives some tensors other formats.",
    ]
    for file in sorted((HERE / "measured").glob("*.json")):
        rows = json.loads(file.read_text())["models"]
        lines += ["", f"## {rows[0]['model']}", "", *_table(rows)]
    return "\n".join(lines) + "\n"


def _table(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "| format | `octavo bench quality` | tokens | size MB | memory MB | perplexity | to bfloat16 |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        first = next(each for each in rows if "=" not in each["model"] and each["num_tokens"] == row["num_tokens"])
        figures = [f"{row['num_tokens']}", f"{row['size_bytes'] / 1e6:.1f}", f"{row['memory_bytes'] / 1e6:.1f}", f"{row['perplexity']:.3f}"]
        distance = f"{100 * (row['perplexity'] / first['perplexity'] - 1):+.2f} %"
        yield f"| {_what(row['model'])} | `{row['model']}` | {' | '.join(figures)} | {distance} |"


def _what(word: str) -> str:
    model, _, rest = word.partition("=")
    if model.endswith(".gguf") and not rest:
        return f"GGUF, {model.removesuffix('.gguf').rpartition('-')[2]}"
    return _WHAT[rest]
