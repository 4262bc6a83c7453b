"""Numbers as operators type them: 1k is 1,000, 1K is 1,024, 25.6k is 25,600."""

import re

from octavo.errors import ConfigError

_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_NUMBER = re.compile(r"^\s*([+-]?\d[\d_]*)(\.\d+)?([kKmMgGtT]?)(?:i?[bB])?\s*$")


def parse_count(text: str | int) -> int:
    """A whole number with an optional unit: k, m, g, t count in thousands, K, M, G, T in 1,024s.

    Decimals go with the decimal units only, since 1.5K would hide what it means. Raises ConfigError for anything else.
    """
    if isinstance(text, int):
        return text
    match = _NUMBER.match(text)
    if match is None:
        raise ConfigError(f"{text!r} is not a number", "write 4096, 4k (4,000), 4K (4,096) or 25.6k (25,600)")
    whole, decimals, unit = match.groups()
    if decimals is None:
        return int(whole) * _UNITS.get(unit, 1)
    if unit not in ("k", "m", "g", "t"):
        raise ConfigError(f"{text!r}: decimals need a decimal unit", "write 25.6k (25,600); K, M, G and T take whole numbers")
    value = float(whole + decimals) * _UNITS[unit]
    if abs(value - round(value)) > 1e-6 * max(1.0, abs(value)):
        raise ConfigError(f"{text!r} is not a whole number")
    return round(value)


def parse_length(text: str | int) -> int:
    """A context length: parse_count, or `auto` = -1."""
    if isinstance(text, str) and text.strip().lower() == "auto":
        return -1
    return parse_count(text)


def gib(size_bytes: float) -> str:
    """Bytes in GiB as the log and the errors write them; small sizes keep the digits that say something."""
    value = size_bytes / 2**30
    return f"{value:.2f} GiB" if abs(value) >= 0.1 or size_bytes == 0 else f"{value:.2g} GiB"
