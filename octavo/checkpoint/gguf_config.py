"""A GGUF header in the words of config.json and generation_config.json.

Source of the keys: docs/gguf.md of the ggml project and gguf-py/gguf/constants.py of llama.cpp.
"""

import math
from typing import Any

import numpy as np

from octavo.checkpoint.gguf import GgufHeader
from octavo.errors import CheckpointError, UnsupportedModelError

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")

# <architecture>.<key> that is read here, or changes nothing
_KNOWN = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.dimension_count",
    "rope.dimension_count_swa",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "expert_count",
    "expert_used_count",
    "vocab_size",
    "tensor_data_layout",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "attention.key_length_swa",
    "attention.value_length_swa",
}
# only these read the key; elsewhere it must be neutral
_ONLY_GEMMA3 = {"attention.sliding_window_pattern", "rope.freq_base_swa", "attn_logit_softcapping", "final_logit_softcapping"}
_ONLY_LLAMA = {"expert_count", "expert_used_count"}

# texts of control tokens that end a turn or a text; with eos they end generation
_ENDS = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<EOT>",
}
_CONTROL = 3  # of tokenizer.ggml.token_type


def config(header: GgufHeader) -> dict[str, Any]:
    """config.json's words for this file.

    Raises UnsupportedModelError for an architecture that has no table or a key that is not known, CheckpointError if a key is missing.
    """
    architecture = header.architecture
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(f"GGUF architecture {architecture!r} is not supported", f"known: {', '.join(ARCHITECTURES)}")
    _refuse_unknown_keys(header)
    heads, kv_heads = head_counts(header)
    out: dict[str, Any] = {
        "hidden_size": _number(header, "embedding_length"),
        "intermediate_size": _number(header, "feed_forward_length"),
        "num_hidden_layers": _number(header, "block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": _head_dim(header, heads),
        "max_position_embeddings": _number(header, "context_length"),
        "rms_norm_eps": _decimal(_needed(header, "attention.layer_norm_rms_epsilon")),
        "rope_theta": _decimal(header.of("rope.freq_base", 10000.0)),
        "rope_scaling": _rope_scaling(header),
        "vocab_size": _vocab_size(header),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "torch_dtype": _dtype(header),
        **{f"{word}_token_id": _token_id(header, key) for word, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))},
    }
    out |= {"llama": _llama, "qwen2": _qwen2, "qwen3": _qwen3, "gemma3": _gemma3}[architecture](header)
    if architecture == "qwen2" and out["head_dim"] * heads == out["hidden_size"]:
        del out["head_dim"]  # Qwen2's own configurations do not have the key
    rotated = header.of("rope.dimension_count")
    if rotated is not None and int(rotated) != (head_dim := _head_dim(header, heads)):
        out["partial_rotary_factor"] = int(rotated) / head_dim
    return out


def generation_config(header: GgufHeader) -> dict[str, Any]:
    """generation_config.json's words: the ids that end generation, and the sampling that the file recommends (general.sampling.*)."""
    out: dict[str, Any] = {}
    for word, key in (("bos", "bos"), ("pad", "padding")):
        if (token := _token_id(header, key)) is not None:
            out[f"{word}_token_id"] = token
    ends = _end_ids(header)
    if ends:
        out["eos_token_id"] = ends[0] if len(ends) == 1 else ends
    words = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "penalty_repeat": "repetition_penalty"}
    sampling = {
        word: header.metadata[f"general.sampling.{key}"] for key, word in words.items() if f"general.sampling.{key}" in header.metadata
    }
    if sampling:
        out["do_sample"] = True
        out |= {word: _decimal(value) if isinstance(value, float) else value for word, value in sampling.items()}
    return out


def head_counts(header: GgufHeader) -> tuple[int, int]:
    """(query heads, key/value heads), the same in every layer. UnsupportedModelError if they differ between layers."""
    heads = _number(header, "attention.head_count")
    return heads, _number(header, "attention.head_count_kv", heads)


def _llama(header: GgufHeader) -> dict[str, Any]:
    tensors = header.tensors
    out: dict[str, Any] = {"hidden_act": "silu"}
    if experts := _number(header, "expert_count", 0):
        used = _number(header, "expert_used_count")
        return out | {
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "num_local_experts": experts,
            "num_experts_per_tok": used,
            "sliding_window": None,
        }
    if window := _number(header, "attention.sliding_window", 0):
        return out | {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": window}
    return out | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in tensors,
    }


def _qwen2(header: GgufHeader) -> dict[str, Any]:
    window = _number(header, "attention.sliding_window", 0)
    if window:
        raise UnsupportedModelError(f"{header.path}: qwen2 with a sliding window of {window} in a GGUF file is not supported")
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": _number(header, "block_count"),
    }


def _qwen3(header: GgufHeader) -> dict[str, Any]:
    return _qwen2(header) | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
    }


def _gemma3(header: GgufHeader) -> dict[str, Any]:
    """Gemma 3's text model. The 27B model (62 layers) alone scales queries by hidden_size / heads, which the file does not say."""
    layers, heads = _number(header, "block_count"), _number(header, "attention.head_count")
    hidden, head_dim = _number(header, "embedding_length"), _head_dim(header, heads)
    pattern = header.of("attention.sliding_window_pattern", 6)
    if isinstance(pattern, np.ndarray):
        is_sliding = [bool(value) for value in pattern]
    else:
        is_sliding = [bool((layer + 1) % int(pattern)) for layer in range(layers)]
    if len(is_sliding) != layers:
        raise CheckpointError(f"{header.path}: sliding_window_pattern speaks of {len(is_sliding)} layers, block_count of {layers}")
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "query_pre_attn_scalar": hidden // heads if layers == 62 else head_dim,
        "rope_local_base_freq": _decimal(header.of("rope.freq_base_swa", 10000.0)),
        "sliding_window": _number(header, "attention.sliding_window"),
        "layer_types": ["sliding_attention" if sliding else "full_attention" for sliding in is_sliding],
        "attn_logit_softcapping": _decimal_or_none(header.of("attn_logit_softcapping")),
        "final_logit_softcapping": _decimal_or_none(header.of("final_logit_softcapping")),
    }


def _rope_scaling(header: GgufHeader) -> dict[str, Any] | None:
    """rope_scaling as config.json has it: linear, yarn, or the factors of the tensor rope_freqs.weight."""
    if "rope_freqs.weight" in header.tensors:
        return _rope_factors(header)
    kind = header.of("rope.scaling.type") or ("linear" if header.of("rope.scale_linear") else "none")
    factor = float(header.of("rope.scaling.factor") or header.of("rope.scale_linear") or 1.0)
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise UnsupportedModelError(f"{header.path}: rope scaling {kind!r} is not supported in a GGUF file", "known: none, linear, yarn")
    scaling: dict[str, Any] = {"rope_type": "yarn", "factor": factor}
    if original := header.of("rope.scaling.original_context_length"):
        scaling["original_max_position_embeddings"] = int(original)
    attention = float(header.of("rope.scaling.yarn_attn_factor") or header.of("rope.scaling.attn_factor") or 1.0)
    if attention != 1.0:
        scaling["attention_factor"] = attention * (0.1 * math.log(factor) + 1.0)
    for key, word in (("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")):
        if (value := header.of(f"rope.scaling.{key}")) is not None:
            scaling[word] = float(value)
    return scaling


def _rope_factors(header: GgufHeader) -> dict[str, Any]:
    """The tensor holds what each frequency is divided by. Llama 3's are recognized; any others are said as longrope's factors.

    longrope divides by its factors too, and with attention_factor 1 it scales nothing else.
    """
    tensor = header.tensors["rope_freqs.weight"]
    if tensor.type != "F32" or len(tensor.shape) != 1:
        raise CheckpointError(f"{header.path}: rope_freqs.weight is {tensor.type} of shape {list(tensor.shape)}, not a vector of F32")
    found = np.fromfile(header.path, "<f4", tensor.shape[0], offset=tensor.offset).astype(np.float64)
    base = float(header.of("rope.freq_base", 10000.0))
    scaling = {"factor": _decimal(found.max()), "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    if np.allclose(found, llama3_factors(base, 2 * len(found), **scaling), rtol=1e-4):
        return {"rope_type": "llama3", **scaling}
    factors = [_decimal(value) for value in found]
    return {
        "rope_type": "longrope",
        "short_factor": factors,
        "long_factor": factors,
        "attention_factor": 1.0,
        "factor": 1.0,
        "original_max_position_embeddings": _number(header, "context_length"),
    }


def llama3_factors(
    base: float, dim: int, factor: float, low_freq_factor: float, high_freq_factor: float, original_max_position_embeddings: float
) -> np.ndarray[Any, Any]:
    """What Llama 3.1 divides each of dim / 2 frequencies by. Source: apply_scaling in Meta's llama-models, models/llama3/model.py."""
    wavelength = 2 * np.pi * base ** (np.arange(0, dim, 2) / dim)
    smooth = (original_max_position_embeddings / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor)
    between = 1 / ((1 - smooth) / factor + smooth)
    is_low = wavelength > original_max_position_embeddings / low_freq_factor
    is_high = wavelength < original_max_position_embeddings / high_freq_factor
    return np.where(is_high, 1.0, np.where(is_low, factor, between))


def _refuse_unknown_keys(header: GgufHeader) -> None:
    """A key that is not known may change the mathematics; one that is known for another architecture does. Neutral values do not."""
    prefix = f"{header.architecture}."
    known = (
        _KNOWN - (_ONLY_GEMMA3 if header.architecture != "gemma3" else set()) - (_ONLY_LLAMA if header.architecture != "llama" else set())
    )
    strange = []
    for key, value in header.metadata.items():
        is_neutral = isinstance(value, (bool, int, float, str)) and value in (0, "", "none")
        if key.startswith(prefix) and key.removeprefix(prefix) not in known and not is_neutral:
            strange.append(key)
    if strange:
        raise UnsupportedModelError(f"{header.path}: not supported: {', '.join(strange)}", "the key may change what the model computes")


def _end_ids(header: GgufHeader) -> list[int]:
    ids = [_token_id(header, key) for key in ("eos", "eot", "eom")]
    tokens, types = header.metadata.get("tokenizer.ggml.tokens", []), header.metadata.get("tokenizer.ggml.token_type")
    if isinstance(types, np.ndarray):
        ids += [int(token) for token in np.flatnonzero(types == _CONTROL) if token < len(tokens) and tokens[token] in _ENDS]
    return list(dict.fromkeys(token for token in ids if token is not None))


def _token_id(header: GgufHeader, key: str) -> int | None:
    value = header.metadata.get(f"tokenizer.ggml.{key}_token_id")
    return None if value is None else int(value)


def _head_dim(header: GgufHeader, heads: int) -> int:
    key = _number(header, "attention.key_length", 0) or _number(header, "embedding_length") // heads
    value = _number(header, "attention.value_length", key)
    if value != key:
        raise UnsupportedModelError(f"{header.path}: keys of {key} and values of {value} elements a head are not supported")
    return key


def _vocab_size(header: GgufHeader) -> int:
    tensor = header.tensors.get("token_embd.weight")
    if tensor is None or len(tensor.shape) != 2:
        raise CheckpointError(f"{header.path} has no token_embd.weight", "it holds no model, or a later part of one: name the first")
    return tensor.shape[0]


def _dtype(header: GgufHeader) -> str:
    """What the file was made of, as far as it says: file types 0 and 1 are plain float32 and float16; all else is widened to bfloat16."""
    return {0: "float32", 1: "float16"}.get(header.metadata.get("general.file_type", -1), "bfloat16")


def _needed(header: GgufHeader, key: str) -> Any:
    value = header.of(key)
    if value is None:
        raise CheckpointError(f"{header.path} does not say {header.architecture}.{key}", "it is damaged, or of an old converter")
    return value


def _number(header: GgufHeader, key: str, default: int | None = None) -> int:
    """A whole number; an array, one per layer, is one number if all are equal."""
    value = _needed(header, key) if default is None else header.of(key, default)
    if isinstance(value, np.ndarray):
        if len(value) == 0 or (value != value[0]).any():
            raise UnsupportedModelError(f"{header.path}: {header.architecture}.{key} differs between layers")
        value = value[0]
    if isinstance(value, str | float) or int(value) < 0:
        raise CheckpointError(f"{header.path}: {header.architecture}.{key} is {value!r}")
    return int(value)


def _decimal(value: Any) -> float:
    """The shortest decimal that is this float32: 1e-06 and not 9.999999974752427e-07."""
    return float(str(np.float32(value)))


def _decimal_or_none(value: Any) -> float | None:
    return None if value is None or value == 0 else _decimal(value)
