"""Targets: which of a model's weights a checkpoint's lists of names mean, in the several ways that tools write them."""

import fnmatch
import re
from collections.abc import Iterable

# what engines call layers that they run as one, and some tools write into their lists
FUSED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "w1": "w13",
    "w3": "w13",
}


def names(path: str, entry: str) -> bool:
    """Whether an entry of a list means the weight that is called `path`.

    An entry is a path or the end or beginning of one, at dots (`lm_head`, `model.layers.0`); `re:` and an expression that matches from the
    start on; or a pattern of either with * and ?. Sources: compressed-tensors' targets, transformers' modules_to_not_convert.
    """
    if entry.startswith("re:"):
        return re.match(entry[3:], path) is not None
    if any(mark in entry for mark in "*?["):
        return fnmatch.fnmatchcase(path, entry) or fnmatch.fnmatchcase(path, f"*.{entry}")
    entry = entry.removesuffix(".weight").removesuffix(".")
    return path == entry or path.endswith("." + entry) or path.startswith(entry + ".") or f".{entry}." in path


def named(path: str, entries: Iterable[str]) -> bool:
    """Whether any entry does, by the weight's own name or by that of the layer that it is fused into."""
    parent, _, last = path.rpartition(".")
    fused = FUSED.get(last)
    return any(names(path, entry) or (fused is not None and names(f"{parent}.{fused}", entry)) for entry in entries)
