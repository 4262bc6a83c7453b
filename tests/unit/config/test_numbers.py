"""Numbers as operators type them."""

import pytest

from octavo.config.numbers import parse_count, parse_length
from octavo.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4096", 4096),
        ("1k", 1000),
        ("1K", 1024),
        ("25.6k", 25600),
        ("1m", 10**6),
        ("2M", 2 * 2**20),
        ("1G", 2**30),
        ("4g", 4 * 10**9),
        ("1T", 2**40),
        ("2GiB", 2 * 2**30),
        ("-1", -1),
        ("0", 0),
        (7, 7),
    ],
)
def test_parse_count(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize("text", ["1.5K", "k", "", "1x", "1.0001k", "ten"])
def test_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_count(text)


def test_parse_length() -> None:
    assert parse_length("auto") == -1
    assert parse_length("-1") == -1
    assert parse_length("32K") == 32768
