"""Schemas that check-jsonschema carries, of files that people write: each is compiled, or refused with the reason (times: -rP)."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import RequestError
from tests.grammar import vocabularies

package = pytest.importorskip("check_jsonschema")
LEAST_ACCEPTED = 5
_REASONS = ("keyword", "too large", "characters", "oneOf", "min/maxProperties", "is not present in a registry")


def test_each_is_compiled_or_refused_with_the_reason() -> None:
    files = sorted(Path(package.__file__).parent.rglob("*.json"))
    assert len(files) > 20
    vocabularies.matcher(json={"type": "string"})  # the vocabulary's tables
    accepted = 0
    for file in files:
        reason, took_ms = _compile(json.loads(file.read_text()))
        print(f"{file.name:<44}{file.stat().st_size / 1e3:>8.1f} kB{took_ms:>8.1f} ms  {reason or 'accepted'}")
        accepted += not reason
        assert not reason or any(words in reason for words in _REASONS), reason
    assert accepted >= LEAST_ACCEPTED


def _compile(schema: Any) -> tuple[str, float]:
    """Why it is refused, or "", and the least time of three."""
    reason, took_s = "", []
    for _ in range(3):
        began = time.perf_counter()
        try:
            vocabularies.matcher(json=schema)
        except RequestError as error:
            reason = error.fact
        took_s.append(time.perf_counter() - began)
    return reason, 1e3 * min(took_s)
