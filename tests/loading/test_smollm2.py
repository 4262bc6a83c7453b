"""The real SmolLM2 file: every parameter is what the gguf package's dequantization, put in the model's own order, gives."""

from pathlib import Path

import numpy as np
import pytest
import torch

from octavo.checkpoint import hf_config, index
from octavo.layers.stored import Stored
from octavo.loading.files import Files
from octavo.loading.fill import Fill

pytestmark = [pytest.mark.model]
LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}


def parameters(config: dict[str, int]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """path -> (name in the file, shape) of every parameter."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes = [(hidden,), (hidden,), (q, hidden), (kv, hidden), (kv, hidden), (hidden, q), (inner, hidden), (inner, hidden), (hidden, inner)]
    out = {
        f"model.layers.{layer}.{path}": (f"blk.{layer}.{disk}", shape)
        for layer in range(config["num_hidden_layers"])
        for (path, disk), shape in zip(LAYER.items(), shapes, strict=True)
    }
    ends = {
        "model.embed_tokens.weight": ("token_embd.weight", (config["vocab_size"], hidden)),
        "model.norm.weight": ("output_norm.weight", (hidden,)),
    }
    return out | ends


def filled(path: Path, dtype: torch.dtype, wanted: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    stored = [Stored(name, shape, torch.full(shape, float("nan"), dtype=dtype)) for name, shape in wanted.items()]
    with Fill(index.read(path)) as fill:
        fill.check(stored)
        fill.fill(stored)
        fill.finish()
    return {one.path: one.target for one in stored}


@pytest.mark.oracle
def test_parameters_are_the_gguf_packages(smollm2_gguf: Path) -> None:
    from gguf import GGUFReader
    from gguf.quants import dequantize

    config = hf_config.read(smollm2_gguf)[0]
    names = parameters(config)
    ours = filled(smollm2_gguf, torch.float32, {path: shape for path, (_, shape) in names.items()})
    theirs = {tensor.name: tensor for tensor in GGUFReader(smollm2_gguf).tensors}
    for path, (disk, shape) in names.items():
        if ".layers." in path and path.split(".")[2] not in ("0", "1", "17", "29"):
            continue  # the package is slow: the ends and the middle
        wanted = dequantize(theirs[disk].data, theirs[disk].tensor_type).reshape(shape)
        if "q_proj" in path or "k_proj" in path:
            heads = config["num_attention_heads" if "q_proj" in path else "num_key_value_heads"]
            wanted = wanted.reshape(heads, config["head_dim"] // 2, 2, -1).swapaxes(1, 2).reshape(shape)
        assert np.array_equal(ours[path].numpy(), wanted), path


def test_parameters_are_those_of_the_converted_folder(smollm2_gguf: Path) -> None:
    folder = smollm2_gguf.parent
    if not (folder / "model.safetensors").exists():
        pytest.skip("OCTAVO_TEST_MODELS has no folder of this model")
    shapes = {name: entry.shape for name, entry in index.read(folder).entries.items()}
    ours = filled(smollm2_gguf, torch.bfloat16, shapes)
    with Files() as files:
        for name, entry in index.read(folder).entries.items():
            assert torch.equal(ours[name], files.plain(entry)), name
    same = filled(folder, torch.bfloat16, shapes)
    assert all(torch.equal(ours[name], tensor) for name, tensor in same.items())
