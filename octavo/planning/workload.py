"""Workload: what clients send, as `in=8000,out=1000,rate=10,prefix=0.5`."""

import math

import msgspec

from octavo.config.numbers import parse_count
from octavo.errors import ConfigError


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths in tokens; rate in requests a second (None: as many as run at a time); prefix: the share of a prompt that is in the cache."""

    prompt: int = 1024
    output: int = 256
    rate: float | None = None
    prefix: float = 0.0

    @property
    def computed_prompt(self) -> int:
        return max(1, round(self.prompt * (1.0 - self.prefix)))


def parse(text: str) -> Workload:
    """Raises ConfigError for an unknown key or a number that cannot be."""
    values: dict[str, float | int] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if key not in ("in", "out", "rate", "prefix") or not equals:
            raise ConfigError(
                f"--workload: {part.strip()!r} is no key=value of in, out, rate, prefix", "as in=8000,out=1000,rate=10,prefix=0.5"
            )
        try:
            values[key] = float(value) if key in ("rate", "prefix") else parse_count(value)
        except ValueError:
            raise ConfigError(f"--workload: {key}={value!r} is no number") from None
        if not math.isfinite(values[key]):
            raise ConfigError(f"--workload: {key}={value!r} is no number that can be counted with")
    if values.get("in", 1) < 1 or values.get("out", 1) < 1 or values.get("rate", 1) <= 0 or not 0 <= values.get("prefix", 0) <= 1:
        raise ConfigError(f"--workload {text}: lengths and rate must be positive, prefix between 0 and 1")
    names = {"in": "prompt", "out": "output", "rate": "rate", "prefix": "prefix"}
    return msgspec.convert({names[key]: value for key, value in values.items()}, Workload)
