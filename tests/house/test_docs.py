"""Docs are tested: generated pages equal what the code says now, links lead somewhere."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _generator() -> object:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", _generator().PAGES)  # type: ignore[attr-defined]
def test_reference_is_fresh(name: str) -> None:
    page = _generator().PAGES[name]()  # type: ignore[attr-defined]
    assert (ROOT / "docs" / "reference" / name).read_text() == page, "run `make docs`"


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text()
    targets = [t for t in re.findall(r"\]\(([^)#]+)", text) if not t.startswith(("http:", "https:", "mailto:"))]
    assert [t for t in targets if not (ROOT / t).exists()] == []


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_that_are_named_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    named = set(re.findall(r"`(octavo/[\w/]+\.py|tests/[\w/]+\.py)`", text))
    assert named
    assert [n for n in sorted(named) if not (ROOT / n).exists()] == []
