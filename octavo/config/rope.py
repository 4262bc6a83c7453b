"""Rotary positions: which of the six ways a model's frequencies are made, and with which numbers. The formulas are in layers/rope.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.errors import UnsupportedModelError

# what each way must and may say beside its kind and theta
_MUST: dict[str, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset({"factor"}),
    "dynamic": frozenset({"factor"}),
    "llama3": frozenset({"factor", "low_freq_factor", "high_freq_factor"}),
    "yarn": frozenset(),
    "longrope": frozenset({"short_factor", "long_factor"}),
}
_MAY: dict[str, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset(),
    "dynamic": frozenset({"original_max_position_embeddings"}),
    "llama3": frozenset({"original_max_position_embeddings"}),
    "yarn": frozenset(
        {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}
    ),
    "longrope": frozenset({"factor", "original_max_position_embeddings", "attention_factor"}),
}
_OLD_NAMES = {"su": "longrope"}


@dataclass(frozen=True, kw_only=True)
class RopeConfig:
    """One way of rotating. Two layers with equal configurations share a table.

    length: max_position_embeddings. original_length: the length of pretraining, before the way was applied.
    """

    kind: str
    theta: float
    dim: int  # of a head, all of it rotated
    length: int
    original_length: int
    factor: float | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()

    @property
    def natural_length(self) -> int:
        """The most tokens that the model was made for."""
        if self.kind in ("linear", "dynamic"):
            return int(self.length * (self.factor or 1.0))
        if self.kind == "yarn":
            return max(self.length, int(self.original_length * (self.factor or 1.0)))
        return self.length


def read_rope(
    parameters: Mapping[str, Any],
    *,
    theta: float,
    length: int,
    head_dim: int,
    model_type: str,
    partial_factor: float = 1.0,
    original_length: int | None = None,
) -> RopeConfig:
    """One `rope_scaling` or `rope_parameters` of a config.json, with what older files keep beside it.

    Raises UnsupportedModelError for an unknown kind, a missing number and one that the kind does not have.
    """
    told = {key: value for key, value in parameters.items() if value is not None}
    kind = told.pop("rope_type", None) or told.get("type") or "default"
    told.pop("type", None)
    kind = _OLD_NAMES.get(kind, kind)
    if kind not in _MUST:
        raise UnsupportedModelError(f"{model_type}: rope type {kind!r} is not supported", f"known: {', '.join(_MUST)}")
    theta = told.pop("rope_theta", theta)
    partial_factor = told.pop("partial_rotary_factor", partial_factor)
    if partial_factor != 1.0:
        fact = f"{model_type}: partial_rotary_factor {partial_factor} is not supported"
        raise UnsupportedModelError(fact, "only whole heads are rotated")
    if missing := _MUST[kind] - told.keys():
        raise UnsupportedModelError(f"{model_type}: rope type {kind!r} lacks {', '.join(sorted(missing))}", "config.json is incomplete")
    if unknown := {key for key in told.keys() - _MUST[kind] - _MAY[kind] if told[key] is not False}:
        names = ", ".join(sorted(unknown))
        raise UnsupportedModelError(f"{model_type}: rope type {kind!r} has {names}, which octavo does not know", "set them to null")
    told = {key: value for key, value in told.items() if key in _MUST[kind] | _MAY[kind]}
    original = told.pop("original_max_position_embeddings", None)
    for key in ("short_factor", "long_factor"):
        if key in told:
            told[key] = tuple(float(value) for value in told[key])
            if len(told[key]) != head_dim // 2:
                fact = f"{model_type}: rope {key} has {len(told[key])} numbers, not {head_dim // 2}"
                raise UnsupportedModelError(fact, "it needs one for each pair of a head")
    # a value beside the parameters wins: that is how files say it whose max_position_embeddings is the extended length
    original = original_length or original or length
    return RopeConfig(kind=kind, theta=float(theta), dim=head_dim, length=length, original_length=original, **told)
