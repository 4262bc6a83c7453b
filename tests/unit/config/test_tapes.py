"""Which steps become tapes follows from the options that say so of graphs."""

from typing import Any

import pytest

from octavo.config.options import Options
from octavo.config.resolve import spread
from octavo.config.tapes import ALL_ROWS, FEW_ROWS, decide_tape_rows
from octavo.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "rows", "said"),
    [
        ({}, ALL_ROWS, None),
        ({"enforce_eager": True}, 0, "--enforce-eager"),
        ({"optimization_level": 0}, 0, "-O0"),
        ({"optimization_level": 1}, FEW_ROWS, "-O1"),
        ({"optimization_level": 3}, ALL_ROWS, None),
        ({"compilation_config": {"cudagraph_mode": "NONE"}}, 0, "cudagraph_mode none"),
        ({"compilation_config": {"cudagraph_mode": "FULL"}}, ALL_ROWS, None),
        ({"compilation_config": {"max_cudagraph_capture_size": 16}}, 16, "up to 16 rows"),
        ({"compilation_config": {"cudagraph_capture_sizes": [1, 4]}}, 4, "up to 4 rows"),
        ({"max_cudagraph_capture_size": 0}, 0, "up to 0 rows"),
        ({"cudagraph_capture_sizes": [2, 8], "max_cudagraph_capture_size": 8}, 8, "up to 8 rows"),
        ({"compilation_config": {"mode": 3, "backend": "eager"}}, ALL_ROWS, "backend: octavo compiles its own kernels"),
        ({"compilation_config": 3}, ALL_ROWS, None),
    ],
)
def test_rows(given: dict[str, Any], rows: int, said: str | None) -> None:
    reasons: list[str] = []
    assert decide_tape_rows(spread(Options(**given)), reasons) == rows
    assert len(reasons) == (said is not None)
    assert said is None or said in reasons[0]


@pytest.mark.parametrize(
    "given",
    [
        {"cudagraph_capture_sizes": [2, 8], "max_cudagraph_capture_size": 4},
        {"max_cudagraph_capture_size": -1},
        {"cudagraph_capture_sizes": [0, 3]},
        {"optimization_level": 4},
    ],
)
def test_sizes_that_cannot_be(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        decide_tape_rows(Options(**given), [])
