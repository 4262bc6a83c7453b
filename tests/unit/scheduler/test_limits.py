"""Limits: each one's answer alone, and the number that all of them settle on."""

import random

import pytest

from octavo.protocol.messages import EngineRequest
from octavo.protocol.sampling_params import SamplingParams
from octavo.scheduler.limits.limit import BEGINNING, settle
from octavo.scheduler.limits.long_prefill import LongPrefill
from octavo.scheduler.limits.prefill_interval import PrefillInterval
from octavo.scheduler.limits.rows import Rows
from octavo.scheduler.limits.state_border import StateBorder
from octavo.scheduler.limits.token_budget import TokenBudget
from octavo.scheduler.limits.whole_prompt import WholePrompt
from octavo.scheduler.request import Request, Start
from tests.unit.scheduler.drive import make, request


def waiting(prompt: int = 40, name: str = "a") -> Request:
    message: EngineRequest = request(name, prompt)
    assert isinstance(message.sampling, SamplingParams)
    return Request(message, message.sampling, (0, 0.0, 1), 64)


def test_the_budget_is_spent_and_comes_back_with_the_next_step() -> None:
    limit, one = TokenBudget(10), waiting()
    limit.start_step()
    assert limit.grant(one, BEGINNING, 40) == 10
    limit.take(one, BEGINNING, 7)
    assert (limit.grant(one, BEGINNING, 2), limit.grant(one, BEGINNING, 40)) == (2, 3)
    limit.start_step()
    assert limit.grant(one, BEGINNING, 40) == 10


def test_rows_are_named_by_ever_new_epochs() -> None:
    limit, one, other = Rows(1), waiting(name="a"), waiting(name="b")
    limit.take(one, BEGINNING, 1)
    assert (one.row, limit.grant(one, BEGINNING, 5), limit.grant(other, BEGINNING, 5)) == (0, 5, 0)
    limit.release(one)
    limit.take(other, BEGINNING, 1)
    assert other.row == 0
    assert other.epoch > one.epoch


def test_a_long_prompt_is_cut_only_in_company() -> None:
    present = [1]
    limit, one = LongPrefill(8, lambda: present[0]), waiting()
    for count, granted in ((1, 40), (2, 8)):
        present[0] = count
        limit.start_step()
        assert limit.grant(one, BEGINNING, 40) == granted
    assert limit.grant(one, BEGINNING, 3) == 3


def test_prefill_waits_for_its_turn_while_somebody_decodes() -> None:
    limit, one, decoding = PrefillInterval(3), waiting(name="a"), waiting(name="b")
    for _ in range(2):
        limit.start_step()
        assert limit.grant(one, BEGINNING, 5) == 5
    limit.take(decoding, Start(30), 10)
    granted = []
    for _ in range(6):
        limit.start_step()
        assert limit.grant(decoding, Start(40), 1) == 1
        granted.append(limit.grant(one, BEGINNING, 5))
    assert granted == [0, 5, 0, 0, 5, 0]
    limit.release(decoding)
    limit.start_step()
    assert limit.grant(one, BEGINNING, 5) == 5


def test_a_prompt_is_whole_or_not_at_all() -> None:
    limit, one = WholePrompt(), waiting(40)
    assert [limit.grant(one, BEGINNING, want) for want in (39, 40, 45)] == [0, 40, 45]
    assert [limit.grant(one, Start(32), want) for want in (7, 8)] == [0, 8]


@pytest.mark.parametrize(
    ("start", "want", "granted"), [(0, 16, 16), (0, 20, 16), (5, 20, 11), (5, 4, 4), (5, 11, 11), (16, 40, 32), (48, 3, 3)]
)
def test_a_span_over_a_border_ends_at_one(start: int, want: int, granted: int) -> None:
    assert StateBorder(16).grant(waiting(), Start(start), want) == granted


def test_what_is_settled_is_legal_for_all_and_the_largest_such_number() -> None:
    rng = random.Random(0)
    for _ in range(300):
        one, start = waiting(rng.randint(1, 60)), Start(rng.randint(0, 30))
        budget = TokenBudget(rng.randint(1, 40))
        budget.start_step()
        limits = [budget, StateBorder(rng.randint(1, 16)), LongPrefill(rng.randint(1, 20), lambda: 2)]
        limits[2].start_step()
        rng.shuffle(limits)
        want = rng.randint(1, 50)
        granted, blamed = settle(limits, one, start, want)
        legal = [n for n in range(1, want + 1) if all(limit.grant(one, start, n) == n for limit in limits)]
        assert granted == max(legal)
        assert blamed is None


def test_asking_once_would_not_do() -> None:
    border, budget, one = StateBorder(16), TokenBudget(20), waiting(40)
    budget.start_step()
    assert settle([border, budget], one, Start(5), 35) == (11, None)
    assert settle([WholePrompt(), budget], one, BEGINNING, 40)[0] == 0


def test_a_refusal_names_the_limit() -> None:
    scheduler = make(num_blocks=3)
    one = waiting(40)
    one.tables = scheduler.cache.tables()
    for limit in scheduler.limits:
        limit.start_step()
    granted, blamed = settle(scheduler.limits, one, BEGINNING, 40)
    assert granted == 0
    assert blamed is not None
    assert blamed.relieved_by_preemption


def test_the_watermark_holds_for_the_second_request_only() -> None:
    scheduler = make(num_blocks=11, watermark=0.3)  # 10 blocks to use, 3 of them left free
    scheduler.add(request("a", 30, max_tokens=8, arrival_s=0.0))
    scheduler.add(request("b", list(range(50, 54)), max_tokens=1, arrival_s=1.0))
    plan = scheduler.plan()
    assert plan is not None
    assert [new.request_id for new in plan.new_rows] == ["a"]


@pytest.mark.parametrize(("reserve", "admitted"), [(True, ["a"]), (False, ["a", "b"])])
def test_the_whole_prompt_must_fit_to_be_admitted(reserve: bool, admitted: list[str]) -> None:
    scheduler = make(num_blocks=11, reserve_full_prompt=reserve)
    scheduler.add(request("a", 20, max_tokens=4, arrival_s=0.0))
    scheduler.add(request("b", list(range(50, 80)), max_tokens=4, arrival_s=1.0))
    plan = scheduler.plan()
    assert plan is not None
    assert [new.request_id for new in plan.new_rows] == admitted


def test_an_adaptive_cap_is_a_fair_share_of_the_budget() -> None:
    present = [2]
    limit, one = LongPrefill(8, lambda: present[0], 100), waiting(prompt=400)
    for count, granted in ((2, 50), (5, 20), (50, 8), (1, 400)):
        present[0] = count
        limit.start_step()
        assert limit.grant(one, BEGINNING, 400) == granted
