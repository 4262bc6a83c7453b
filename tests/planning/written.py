"""Tiny checkpoints of every model type in every number format, and one rank's real model of them: what a plan is held against."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from octavo.checkpoint import index as checkpoint_index
from octavo.config.config import Config
from octavo.layers.decoder import CausalLM
from octavo.layers.stored import stored_parameters
from octavo.loading.build import _choices, _scheme, bare
from octavo.loading.fill import Fill
from octavo.loading.finish import finish
from octavo.loading.quantize import quantize
from octavo.parallel.cut import Group
from tests.quant import test_awq, test_compressed_tensors, test_fp8, test_gptq, test_int8_activations, test_layouts
from tests.quant.checkpoints import SIZES, Encode, configured, write

MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text", "mixtral")
# heads that 4 ranks can share, each of whole groups of 32 columns
WIDE = {"head_dim": 32}


@dataclass(frozen=True)
class NumberFormat:
    """scheme: as resolve() names it. encode: how linear weights are written; None: plain, and what `scheme` says happens while loading."""

    scheme: str | None = None
    encode: Encode | None = None
    config: dict[str, Any] | None = None
    sizes: dict[str, int] = field(default_factory=dict)


FORMATS = {
    "plain": NumberFormat(),
    **{
        name: NumberFormat(name)
        for name in ("fp8_per_tensor", "fp8_per_block", "int8_per_channel_weight_only", "int8", "int8_token", "int4", "mxfp8", "nvfp4")
    },
    "nf4 while loading": NumberFormat("bitsandbytes"),
    "fp8 by tensor": NumberFormat("fp8", test_fp8.per_tensor, test_fp8.STATIC),
    "fp8 by block": NumberFormat("fp8", test_fp8.blocks, test_fp8.BLOCKED),
    "fp8 by block, powers of two": NumberFormat("fp8", test_fp8.ue8m0, test_fp8.BLOCKED),
    "awq": NumberFormat("awq", test_awq.encode, test_awq.CONFIG),
    **{f"gptq {bits}": NumberFormat("gptq", test_gptq.encoder(bits), test_gptq.config(bits)) for bits in (2, 3, 4, 8)},
    "gptq 4, in an order": NumberFormat(
        "gptq", test_gptq.encoder(4, order=torch.Generator().manual_seed(1)), test_gptq.config(4, desc_act=True)
    ),
    "compressed-tensors int4": NumberFormat(
        "compressed_tensors", test_compressed_tensors.packed(), test_compressed_tensors.config(test_compressed_tensors.group(["Linear"]))
    ),
    "compressed-tensors w8a8": NumberFormat("compressed_tensors", test_compressed_tensors.int8, test_int8_activations.DYNAMIC),
    "modelopt nvfp4": NumberFormat("modelopt", test_layouts.nvfp4, {"quant_method": "modelopt", "quant_algo": "NVFP4"}),
    "modelopt fp8": NumberFormat("modelopt", test_layouts.fp8, {"quant_method": "modelopt", "quant_algo": "FP8"}),
    "bitsandbytes nf4": NumberFormat(
        "bitsandbytes",
        test_layouts.nested_nf4,
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64},
    ),
}


def written_config(folder: Path, model_type: str, number_format: NumberFormat, **changes: Any) -> Config:
    """A checkpoint on disk, and what resolve() would make of it."""
    encode = number_format.encode or (lambda path, weight: None)
    sizes = {**WIDE, **number_format.sizes, **{key: value for key, value in changes.items() if key in _SIZES}}
    if model_type == "mixtral":
        encode = partial(_without_router, encode)
    written = write(folder, encode, number_format.config, model_type, **sizes)
    others = {key: value for key, value in changes.items() if key not in _SIZES}
    return configured(written.folder, number_format.scheme, "bfloat16", max_model_len=256, **others)


_SIZES = {*SIZES, "vocab_size", "num_local_experts", "head_dim", "tie_word_embeddings"}


def _without_router(encode: Callable[..., Any], path: str, weight: torch.Tensor) -> Any:
    return None if path.endswith("gate") else encode(path, weight)


def load_rank(config: Config, group: Group) -> CausalLM:
    """One rank's model in real memory, read from its files and finished for the kernels that it would run with."""
    model = bare(config, group)
    quantize(model, _scheme(config, model), torch.device("cpu"))
    with Fill(checkpoint_index.read(config.model.path), model.names) as fill:
        if group.expert_size == 1:  # else what other ranks hold would be left over
            fill.check(stored_parameters(model))
        fill.fill(stored_parameters(model))
    finish(model, _choices(config, "cpu", dry=False))
    return model
