"""GGUF's names: one table per architecture, from llama.cpp's tensor names to those of the model's own checkpoints.

Source of the names: llama.cpp's gguf-py/gguf/tensor_mapping.py and the transformations in its convert_hf_to_gguf.py.
"""

from octavo.checkpoint import gguf_config
from octavo.checkpoint.gguf import GgufHeader
from octavo.checkpoint.names import Add, Expert, Names, RopePermutation, Row, Skip, View
from octavo.errors import UnsupportedModelError

_DISK, _PATH = "blk.{i}.", "model.layers.{i}."


def table(header: GgufHeader) -> Names:
    """The rows for this file's architecture. Raises UnsupportedModelError if there is none."""
    tables = {"llama": _llama, "qwen2": _qwen2, "qwen3": _qwen3, "gemma3": _gemma3}
    if header.architecture not in tables:
        raise UnsupportedModelError(
            f"GGUF architecture {header.architecture!r} is not supported", f"known: {', '.join(gguf_config.ARCHITECTURES)}"
        )
    return Names.of(tables[header.architecture](header))


def _ends(norm: View | tuple[View, ...] = ()) -> list[Row | Skip]:
    return [
        Row("token_embd.weight", "model.embed_tokens.weight"),
        Row("output_norm.weight", "model.norm.weight", norm),
        Row("output.weight", "lm_head.weight"),
    ]


def _layer(disk: str, path: str, view: View | tuple[View, ...] = (), words: tuple[str, ...] = ("weight", "bias")) -> list[Row | Skip]:
    return [Row(f"{_DISK}{disk}.{word}", f"{_PATH}{path}.{word}", view) for word in words]


def _norm(disk: str, path: str, view: View | tuple[View, ...] = ()) -> list[Row | Skip]:
    return _layer(disk, path, view, words=("weight",))


def _dense(q: View | tuple[View, ...] = (), k: View | tuple[View, ...] = ()) -> list[Row | Skip]:
    """Attention and the gated MLP."""
    return [
        *_layer("attn_q", "self_attn.q_proj", q),
        *_layer("attn_k", "self_attn.k_proj", k),
        *_layer("attn_v", "self_attn.v_proj"),
        *_layer("attn_output", "self_attn.o_proj"),
        *_layer("ffn_gate", "mlp.gate_proj"),
        *_layer("ffn_up", "mlp.up_proj"),
        *_layer("ffn_down", "mlp.down_proj"),
    ]


def _llama(header: GgufHeader) -> list[Row | Skip]:
    """llama, mistral and mixtral: q and k in llama.cpp's order; experts packed (since 2024) or each for itself (before)."""
    heads, kv_heads = gguf_config.head_counts(header)
    experts: list[Row | Skip] = [Row(f"{_DISK}ffn_gate_inp.weight", f"{_PATH}block_sparse_moe.gate.weight")]
    for disk, path in (("gate", "w1"), ("down", "w2"), ("up", "w3")):
        of_expert = f"{_PATH}block_sparse_moe.experts.{{e}}.{path}.weight"
        experts.append(Row(f"{_DISK}ffn_{disk}_exps.weight", of_expert, Expert()))
        experts.append(Row(f"{_DISK}ffn_{disk}.{{e}}.weight", of_expert))
    return [
        *_ends(),
        *_norm("attn_norm", "input_layernorm"),
        *_norm("ffn_norm", "post_attention_layernorm"),
        *_dense(RopePermutation(heads), RopePermutation(kv_heads)),
        *experts,
        Skip("rope_freqs.weight", "read into rope_scaling by the configuration"),
        Skip(f"{_DISK}attn_rot_embd.weight", "computed from the configuration"),
    ]


def _qwen2(_header: GgufHeader) -> list[Row | Skip]:
    return [*_ends(), *_norm("attn_norm", "input_layernorm"), *_norm("ffn_norm", "post_attention_layernorm"), *_dense()]


def _qwen3(header: GgufHeader) -> list[Row | Skip]:
    return [*_qwen2(header), *_norm("attn_q_norm", "self_attn.q_norm"), *_norm("attn_k_norm", "self_attn.k_norm")]


def _gemma3(_header: GgufHeader) -> list[Row | Skip]:
    """Every norm's weight stands in the file with 1 added."""
    minus_one = Add(-1.0)
    return [
        *_ends(minus_one),
        *_norm("attn_norm", "input_layernorm", minus_one),
        *_norm("post_attention_norm", "post_attention_layernorm", minus_one),
        *_norm("ffn_norm", "pre_feedforward_layernorm", minus_one),
        *_norm("post_ffw_norm", "post_feedforward_layernorm", minus_one),
        *_norm("attn_q_norm", "self_attn.q_norm", minus_one),
        *_norm("attn_k_norm", "self_attn.k_norm", minus_one),
        *_dense(),
    ]
