"""Random schedules of the real engine core over the echo worker: every answer is the oracle's, and nothing is held at the end."""

from collections import Counter

import pytest

from tests.simulation.planted_bugs import BUGS
from tests.simulation.world import Schedule, Tally, run_schedules

SCHEDULES = 2000
CHUNKS = 4
MOST_SEEDS = 5000  # a planted bug must be seen within so many schedules

# what so many schedules must have contained at least, to prove anything
LEAST = Counter(
    {
        "steps": 20_000,
        "preemptions": 300,
        "preemptions by priority": 160,
        "overtakings": 100,
        "hits": 5_000,
        "rejected drafts": 500,
        "masks": 5_000,
        "forced tokens": 1_000,
        "failed steps": 300,
        "failed rows": 50,
        "stop": 300,
        "length": 2_000,
        "abort": 300,
        "repetition": 100,
    }
)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_schedules(chunk: int) -> None:
    size = SCHEDULES // CHUNKS
    tally = Tally()
    run_schedules(chunk * size, (chunk + 1) * size, tally)
    assert tally.counts["schedules"] == size
    lacking = {name: tally.counts[name] for name, least in LEAST.items() if tally.counts[name] * CHUNKS < least * 0.8}
    assert not lacking


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[name](monkeypatch)
    for seed in range(MOST_SEEDS):
        try:
            Schedule(seed).run()
        except (TypeError, AttributeError, NameError):
            raise  # the planted code itself is broken
        except Exception:
            return
    pytest.fail(f"{name} was planted, and {MOST_SEEDS} schedules did not notice")


def test_schedules_repeat_exactly() -> None:
    first, second = Schedule(3).run(), Schedule(3).run()
    assert first.outputs.keys() == second.outputs.keys()
    for request_id, outputs in first.outputs.items():
        assert [(o.token_ids, o.finish_reason) for o in outputs] == [(o.token_ids, o.finish_reason) for o in second.outputs[request_id]]
