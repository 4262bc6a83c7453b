"""Cache formats: every number format in which keys and values can be kept, what one takes, and which of a model's layers has which.

A vector is one token's key, or value, of one head. Its codes come with side bytes, which say what they mean:

layer       no side bytes; the layer has one scale for all keys and one for all values (1 where the checkpoint has none)
token_head  4 bytes a vector: a float32 scale; where the codes are unsigned, a bfloat16 scale and the bfloat16 number that code 0 means
group       1 byte for 16 numbers: an e4m3 scale, times the layer's

octavo/ops/cache_codes.py has the arithmetic, octavo/ops/pages.py says how codes and side bytes lie in a page.
"""

from dataclasses import dataclass
from typing import Any, Literal

from octavo.errors import ConfigError

GROUP = 16  # numbers of a vector that share a scale, where scale is "group"


@dataclass(frozen=True, slots=True)
class CacheFormat:
    """code: of one number; "bfloat16", "float32" and "float16" are the numbers themselves, which have no scale."""

    name: str
    code: Literal["float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2", "int8", "uint4", "float4_e2m1"]
    scale: Literal["none", "layer", "token_head", "group"]

    @property
    def bits(self) -> int:
        return {"float32": 32, "bfloat16": 16, "float16": 16, "uint4": 4, "float4_e2m1": 4}.get(self.code, 8)

    @property
    def is_plain(self) -> bool:
        return self.scale == "none"

    @property
    def has_layer_scale(self) -> bool:
        return self.scale in ("layer", "group")

    def code_bytes(self, head_dim: int) -> int:
        """Of the codes of one vector."""
        return head_dim * self.bits // 8

    def side_bytes(self, head_dim: int) -> int:
        """Beside the codes of one vector."""
        return {"token_head": 4, "group": head_dim // GROUP}.get(self.scale, 0)

    def bytes_per_token(self, num_kv_heads: int, head_dim: int) -> int:
        """Of one token's key and value in one layer."""
        return 2 * num_kv_heads * (self.code_bytes(head_dim) + self.side_bytes(head_dim))

    def refuses(self, head_dim: int) -> str | None:
        """Why vectors of this length cannot be kept so, or None."""
        multiple = GROUP if self.scale == "group" else 2 if self.bits == 4 else 1
        return f"head dimension {head_dim} is not a multiple of {multiple}, as {self.name} needs" if head_dim % multiple else None


FORMATS: dict[str, CacheFormat] = {
    each.name: each
    for each in (
        CacheFormat("float32", "float32", "none"),
        CacheFormat("bfloat16", "bfloat16", "none"),
        CacheFormat("float16", "float16", "none"),
        CacheFormat("fp8_e4m3", "float8_e4m3", "layer"),
        CacheFormat("fp8_e5m2", "float8_e5m2", "layer"),
        CacheFormat("fp8_per_token_head", "float8_e4m3", "token_head"),
        CacheFormat("int8_per_token_head", "int8", "token_head"),
        CacheFormat("int4_per_token_head", "uint4", "token_head"),
        CacheFormat("nvfp4", "float4_e2m1", "group"),
    )
}
ALIASES = {"fp8": "fp8_e4m3"}
TYPED = ("auto", "fp8", *FORMATS)  # what --kv-cache-dtype takes


def decide(typed: str, model_dtype: str, quantization_config: dict[str, Any], reasons: list[str]) -> CacheFormat:
    """The format of the cache. auto: what the checkpoint was calibrated for, else the model's own numbers."""
    name = ALIASES.get(typed, typed)
    if name == "auto":
        stored = _stored(quantization_config)
        if stored is None:
            return FORMATS[model_dtype]
        name = stored
        reasons.append(f"kv_cache_dtype = {name}: the checkpoint has scales for it; --kv-cache-dtype {model_dtype} keeps plain numbers")
    if FORMATS[name].is_plain and name != model_dtype:
        raise ConfigError(f"kv_cache_dtype {name} differs from the model's {model_dtype}", "leave it at auto, or set --dtype to the same")
    return FORMATS[name]


def _stored(quantization_config: dict[str, Any]) -> str | None:
    """The format that a checkpoint has calibrated scales for, as compressed-tensors or modelopt say it."""
    settings = quantization_config.get("quantization", quantization_config)
    scheme = quantization_config.get("kv_cache_scheme")
    algorithm = str(settings.get("kv_cache_quant_algo") or "").upper()
    is_fp8 = isinstance(scheme, dict) and (scheme.get("type"), scheme.get("num_bits")) == ("float", 8) and not scheme.get("dynamic")
    return "fp8_e4m3" if is_fp8 or algorithm == "FP8" else "nvfp4" if algorithm == "NVFP4" else None


def check_skipped(skipped: list[str], num_layers: int | None) -> None:
    """Raise ConfigError for an entry of --kv-cache-dtype-skip-layers that names no layer. num_layers: of the model, where it says."""
    for entry in skipped:
        if entry.isdecimal() and num_layers is not None and int(entry) >= num_layers:
            raise ConfigError(f"kv_cache_dtype_skip_layers: there is no layer {entry}", f"layers are 0 to {num_layers - 1}")
        if entry != "sliding_window" and not entry.isdecimal():
            raise ConfigError(
                f"kv_cache_dtype_skip_layers: {entry!r} is neither the number of a layer nor sliding_window",
                "for example: --kv-cache-dtype-skip-layers 0 1 sliding_window",
            )


def format_of_layer(name: str, model_dtype: str, skipped: list[str], layer: int, has_window: bool) -> CacheFormat:
    """What one layer keeps, in a cache of the format `name`: those that are skipped keep the model's own numbers."""
    is_skipped = str(layer) in skipped or (has_window and "sliding_window" in skipped)
    return FORMATS[model_dtype if name == "auto" or is_skipped else name]
