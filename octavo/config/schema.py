"""The configuration of a model: config.json read key by key, each known, so that nothing that changes the mathematics passes unseen.

Keys are what transformers' configuration classes call them, with their defaults; the layouts of earlier releases are read as well.
"""

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Self, get_args

from octavo import plugins
from octavo.config.rope import RopeConfig, read_rope
from octavo.errors import UnsupportedModelError

# keys that say nothing about the forward pass of a trained model; auto_map names code beside the weights, which nobody imports, and
# quantization_config is read where the weights are
HARMLESS = frozenset(
    {
        "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_name_or_path", "architectures", "attention_dropout",
        "attn_implementation", "auto_map", "bad_words_ids", "begin_suppress_tokens", "bos_token_id", "cache_implementation",
        "decoder_start_token_id", "diversity_penalty", "do_sample", "dtype", "early_stopping", "embd_pdrop",
        "encoder_no_repeat_ngram_size", "eos_token_id",
        "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id", "forced_eos_token_id", "hidden_dropout",
        "hidden_dropout_prob", "id2label", "initializer_range", "is_llama_config", "keys_to_ignore_at_inference", "label2id",
        "length_penalty", "max_length", "min_length", "model_type", "no_repeat_ngram_size", "num_beam_groups", "num_beams",
        "num_return_sequences", "output_attentions", "output_hidden_states", "output_router_logits", "output_scores", "pad_token_id",
        "prefix", "pretraining_tp", "problem_type", "quantization_config", "remove_invalid_values", "repetition_penalty", "resid_pdrop",
        "return_dict", "return_dict_in_generate", "router_aux_loss_coef", "router_jitter_noise", "sep_token_id", "suppress_tokens",
        "task_specific_params", "temperature", "tf_legacy_loss", "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript",
        "transformers.js_config", "transformers_version", "typical_p", "unsloth_fixed", "unsloth_version", "use_cache",
    }
)  # fmt: skip

# spellings of the activations that octavo computes
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}


def check_model_type(model_type: str) -> None:
    """Raises UnsupportedModelError, with the known types and the nearest one, unless octavo/models has a file of that name."""
    known = plugins.names("models")
    if plugins.file_name(model_type) not in known:
        near = difflib.get_close_matches(plugins.file_name(model_type), known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UnsupportedModelError(f"model type {model_type!r} is not supported", f"{hint}known: {', '.join(known)}")


class Keys:
    """config.json while it is read: every key is taken by somebody, or is known to be harmless, or is an error."""

    def __init__(self, data: Mapping[str, Any], model_type: str) -> None:
        self._data = dict(data)
        self._taken: set[str] = set()
        self.model_type = model_type

    def take(self, key: str, default: Any = None) -> Any:
        """The value; `default` where the key is missing or null."""
        self._taken.add(key)
        value = self._data.get(key)
        return default if value is None else value

    def take_or_null(self, key: str, default: Any) -> Any:
        """The value, null included, where null says something of its own; `default` only where the key is missing."""
        self._taken.add(key)
        return self._data.get(key, default)

    def require(self, key: str) -> Any:
        value = self.take(key)
        if value is None:
            raise UnsupportedModelError(f"{self.model_type}: config.json has no {key!r}", "the file is incomplete; fetch the model again")
        return value

    def refuse(self, key: str, value: Any, why: str = "which octavo does not know") -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{self.model_type}: config.json has {key!r} = {value!r}, {why}",
            f"if it does not change what the model computes, set {key!r} to null",
        )

    def refuse_others(self) -> None:
        """Raises UnsupportedModelError for the first key that nobody took and that says something."""
        for key, value in self._data.items():
            if key not in self._taken and key not in HARMLESS and value not in (None, False, "", [], {}):
                raise self.refuse(key, value)


def named(key: str, default: Any = MISSING) -> Any:
    """A field whose key in config.json has another name."""
    return field(metadata={"key": key}) if default is MISSING else field(default=default, metadata={"key": key})


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """What every plain decoder has. A model's Config adds fields (name = key of config.json), and says how its windows and ropes are told.

    windows, ropes: one entry a layer; a window of 0 sees everything. max_length: the most tokens that a sequence will have.
    """

    default_theta: ClassVar[float] = 10000.0
    default_head_dim: ClassVar[int | None] = None  # None: hidden_size / num_attention_heads

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    windows: tuple[int, ...]
    ropes: tuple[RopeConfig, ...]
    max_length: int

    @classmethod
    def parse(cls, data: Mapping[str, Any], max_length: int | None = None, sliding: bool = True) -> Self:
        """The configuration in a config.json.

        max_length: None = the longest that the model was made for. sliding: False makes every layer see everything.
        Raises UnsupportedModelError for a missing key, one that octavo does not know, and a value that it cannot compute.
        """
        keys = Keys(data, str(data.get("model_type", cls.__module__.rsplit(".", 1)[-1])))
        values: dict[str, Any] = {"num_hidden_layers": _value(keys, "num_hidden_layers", int, MISSING)}
        values["num_attention_heads"] = heads = _value(keys, "num_attention_heads", int, MISSING)
        values["num_key_value_heads"] = _value(keys, "num_key_value_heads", int, heads)
        values["hidden_size"] = hidden = _value(keys, "hidden_size", int, MISSING)
        values["head_dim"] = _value(keys, "head_dim", int, cls.default_head_dim or hidden // heads)
        values["max_position_embeddings"] = _value(keys, "max_position_embeddings", int, MISSING)
        windows = cls.read_windows(keys, values["num_hidden_layers"])
        ropes = cls.read_ropes(keys, windows, values["head_dim"])
        values["windows"] = windows if sliding else tuple(0 for _ in windows)
        values["ropes"] = ropes
        values["max_length"] = max_length or max(rope.natural_length for rope in ropes)
        for known in fields(cls):
            if known.name not in values:
                values[known.name] = _value(keys, known.metadata.get("key", known.name), known.type, known.default)
        values["hidden_act"] = _activation(keys, values["hidden_act"])
        keys.refuse_others()
        config = cls(**values)
        config.check(keys)
        return config

    @classmethod
    def read_windows(cls, keys: Keys, num_layers: int) -> tuple[int, ...]:
        """Here: every layer sees everything."""
        kinds = keys.take("layer_types", [])
        if any(kind != "full_attention" for kind in kinds):
            raise keys.refuse("layer_types", kinds, "but every layer of this model type sees everything")
        return (0,) * num_layers

    @classmethod
    def read_ropes(cls, keys: Keys, windows: tuple[int, ...], head_dim: int) -> tuple[RopeConfig, ...]:
        """Here: all layers rotate alike."""
        old, new = keys.take("rope_scaling"), keys.take("rope_parameters")
        rope = read_rope(
            old or new or {},
            theta=keys.take("rope_theta", cls.default_theta),
            partial_factor=keys.take("partial_rotary_factor", 1.0),
            original_length=keys.take("original_max_position_embeddings"),
            length=keys.require("max_position_embeddings"),
            head_dim=head_dim,
            model_type=keys.model_type,
        )
        return (rope,) * len(windows)

    def check(self, keys: Keys) -> None:
        """What must hold between the values. Raises UnsupportedModelError."""
        if self.num_attention_heads % self.num_key_value_heads:
            why = f"which does not divide {self.num_attention_heads} attention heads"
            raise keys.refuse("num_key_value_heads", self.num_key_value_heads, why)
        if self.head_dim % 2:
            raise keys.refuse("head_dim", self.head_dim, "but rotation needs an even one")


def uniform_windows(keys: Keys, num_layers: int, default: int | None) -> tuple[int, ...]:
    """The mistral way: one `sliding_window` for all layers; null is none."""
    window = keys.take_or_null("sliding_window", default) or 0
    expected = "sliding_attention" if window else "full_attention"
    kinds = keys.take("layer_types", [])
    if any(kind != expected for kind in kinds):
        raise keys.refuse("layer_types", kinds, f"but sliding_window is {window or None} for every layer")
    return (int(window),) * num_layers


def windows_by_kind(keys: Keys, kinds: list[str], window: int, num_layers: int) -> tuple[int, ...]:
    """One of `sliding_attention`, `full_attention` a layer."""
    if len(kinds) != num_layers:
        raise keys.refuse("layer_types", kinds, f"but there are {num_layers} layers")
    if unknown := set(kinds) - {"sliding_attention", "full_attention"}:
        raise keys.refuse("layer_types", sorted(unknown))
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def windows_from_layer(keys: Keys, num_layers: int) -> tuple[int, ...]:
    """The qwen way: `use_sliding_window` switches it on, for the layers from `max_window_layers` up or for those that layer_types names."""
    window = keys.take("sliding_window", 4096)
    if not keys.take("use_sliding_window", False):
        window = 0
    first = keys.take("max_window_layers", 28)
    derived = ["sliding_attention" if window and layer >= first else "full_attention" for layer in range(num_layers)]
    return windows_by_kind(keys, keys.take("layer_types", derived), int(window), num_layers)


def _value(keys: Keys, key: str, kind: Any, default: Any) -> Any:
    """One plain value, of the type that the field says."""
    value = keys.require(key) if default is MISSING else keys.take(key, default)
    if value is None:
        return None
    kinds = [k for k in (get_args(kind) or (kind,)) if k is not type(None)]
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not any(isinstance(value, k) and (k is bool or not isinstance(value, bool)) for k in kinds):
        raise keys.refuse(key, value, f"which is not {' or '.join(k.__name__ for k in kinds)}")
    return value


def _activation(keys: Keys, name: str) -> str:
    if name not in ACTIVATIONS:
        raise keys.refuse("hidden_act", name, f"which octavo does not compute (known: {', '.join(ACTIVATIONS)})")
    return ACTIVATIONS[name]
