"""Every public report is the number in the name of a test, or awaits a named feature; never both."""

import re
from pathlib import Path

from tests.reports.awaited import AWAITED

TESTS = Path(__file__).parents[1] / "reports"
COUNTS = {"A": 13, "B": 13, "C": 13, "D": 15, "E": 8, "F": 14, "G": 6, "H": 8, "I": 6}
COUNTS |= {"J": 14, "K": 5, "L": 12, "M": 8, "N": 8, "O": 5, "P": 5, "Q": 9, "R": 3}
REPORTS = {f"{kind}{number}" for kind, count in COUNTS.items() for number in range(1, count + 1)}


def numbered() -> set[str]:
    """test_a3_half_of_... is about A3; test_b4_b5_... is about both."""
    names = [
        name for path in TESTS.glob("test_*.py") for name in re.findall(r"^(?:async )?def test_((?:[a-r]\d+_)+)", path.read_text(), re.M)
    ]
    return {number.upper() for name in names for number in name.strip("_").split("_")}


def test_each_report_has_a_test_or_a_reason() -> None:
    assert len(REPORTS) == 165
    assert sorted(REPORTS - numbered() - AWAITED.keys()) == []


def test_no_report_is_tested_and_awaited() -> None:
    assert sorted(numbered() & AWAITED.keys()) == []


def test_no_other_report_is_named() -> None:
    assert sorted((numbered() | AWAITED.keys()) - REPORTS) == []
    assert all(AWAITED.values())
