"""How long a context a model was made for, as its configuration says it."""

from typing import Any

from octavo.errors import ConfigError


def derived_max_model_len(hf_config: dict[str, Any]) -> int | None:
    """The largest context in tokens, or None if the configuration does not tell.

    YaRN extends the original length by its factor, linear and dynamic scaling the stated one; for llama3 and longrope the stated length is
    the extended one already.
    """
    stated = [
        hf_config[k] for k in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length") if isinstance(hf_config.get(k), int)
    ]
    if not stated:
        return None
    length = int(stated[0])
    rope = hf_config.get("rope_scaling") or hf_config.get("rope_parameters") or {}
    if any(isinstance(v, dict) for v in rope.values()):  # one entry a layer type
        rope = rope.get("full_attention") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    factor = float(rope.get("factor") or 1.0)
    if kind == "yarn":
        return max(length, int((rope.get("original_max_position_embeddings") or length) * factor))
    if kind in ("linear", "dynamic") and not rope.get("original_max_position_embeddings"):
        return int(length * factor)
    return length


def decide_max_model_len(typed: int | None, derived: int | None, allow_longer: bool) -> tuple[int, bool, str]:
    """(length, is auto, reason). For auto the length is the upper limit that the cache may lower.

    Raises ConfigError for a length beyond the derived one, unless `allow_longer`.
    """
    if typed is None or typed == -1:
        if derived is None:
            raise ConfigError("the model's configuration does not tell its context length", "pass --max-model-len")
        auto = typed == -1
        why = "the model's own, lowered to what the cache holds" if auto else "the model's own"
        return derived, auto, f"max_model_len = {derived}: {why}"
    if typed < 1:
        raise ConfigError(f"max_model_len must be at least 1, auto or -1, not {typed}")
    if derived is not None and typed > derived and not allow_longer:
        raise ConfigError(
            f"max_model_len {typed} is greater than the {derived} that the model's configuration says it was made for",
            f"pass --max-model-len {derived} or less; OCTAVO_ALLOW_LONG_MAX_MODEL_LEN=1 allows it, and answers may turn to nonsense",
        )
    return typed, False, f"max_model_len = {typed}: as typed"
