"""Steps written by hand against a tiny model: what a plan may ask, and what of a wrong one hurts nobody else."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from octavo.kvcache.plan import plan_cache
from octavo.protocol.columns import pack, unpack
from octavo.protocol.pooling_params import PoolingParams
from octavo.protocol.sampling_params import SamplingParams
from octavo.protocol.step import STORED, VALUE, GroupChange, MediaReference, NewRow, StepMasks, StepPlan, StepResult
from octavo.worker import sampling
from octavo.worker.worker import Worker
from tests.engine.tiny import VOCABULARY, prompt, tiny_config

BLOCK = 16
BLOCKS_PER_ROW = 8


class Driver:
    """Numbers steps and writes plans. Row r has the blocks 1 + 8r .. 8 + 8r from its beginning."""

    def __init__(self) -> None:
        config = tiny_config()
        self.worker = Worker()
        facts = self.worker.start(config)
        self.worker.initialize_cache(plan_cache(facts.states, BLOCK, 0, num_blocks_override=200))
        self.number = 0
        self.epoch = 0

    def new(self, row: int, tokens: list[int], computed: int = 0, **params: Any) -> NewRow:
        self.epoch += 1
        blocks = range(1 + BLOCKS_PER_ROW * row, 1 + BLOCKS_PER_ROW * (row + 1))
        sampling = SamplingParams(**{"temperature": 0.0, **params})
        return NewRow(row, self.epoch, str(row), pack(tokens), len(tokens), computed, [pack(blocks)], sampling=sampling)

    def plan(self, spans: list[tuple[NewRow, int, int]], sources: list[int] | None = None, **more: Any) -> StepPlan:
        """spans: of each row its NewRow, the first position and the number of tokens; all get a sample."""
        self.number += 1
        rows = [new for new, _, _ in spans]
        columns: dict[str, Any] = {
            "rows": pack([new.row for new in rows]),
            "epochs": pack([new.epoch for new in rows]),
            "starts": pack([start for _, start, _ in spans]),
            "counts": pack([count for _, _, count in spans]),
            "samples": pack([1] * len(spans)),
            "token_sources": pack(sources or [STORED] * len(spans)),
            "token_values": pack([0] * len(spans)),
            "groups": [GroupChange()],
        }
        return StepPlan(self.number, **{**columns, **more})

    def run(self, plan: StepPlan, masks: StepMasks | None = None) -> StepResult:
        return self.worker.run(plan, lambda step: masks)

    def begin(self, *rows: NewRow, **more: Any) -> StepResult:
        """A step in which rows begin with their whole prompts."""
        return self.run(self.plan([(new, 0, new.num_prompt_tokens) for new in rows], new_rows=list(rows), **more))

    def end(self, *rows: NewRow) -> None:
        self.run(StepPlan(self.number, ended_rows=pack([new.row for new in rows])))

    def greedy(self, row: int, tokens: list[int], count: int) -> list[int]:
        """The next tokens of a prompt, one step each."""
        new = self.new(row, tokens)
        said = unpack(self.begin(new).tokens).tolist()
        while len(said) < count:
            plan = self.plan([(new, len(tokens) + len(said) - 1, 1)], [self.number])
            more = unpack(self.run(plan).tokens).tolist()
            assert more, "a step gave nothing"
            said += more
        self.end(new)
        return said


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    threads = torch.get_num_threads()  # the worker sets its own for the thread it runs on, which here is ours
    made = Driver()
    yield made
    made.worker.close()
    torch.set_num_threads(threads)


@pytest.fixture
def rows(driver: Driver) -> Iterator[Callable[..., NewRow]]:
    """Rows that end when the test does."""
    made: list[NewRow] = []

    def new(row: int, tokens: list[int], **more: Any) -> NewRow:
        made.append(driver.new(row, tokens, **more))
        return made[-1]

    yield new
    driver.end(*made)


def tokens_of(result: StepResult) -> list[list[int]]:
    """Each row's tokens."""
    assert result.failure is None
    flat, found, at = unpack(result.tokens).tolist(), [], 0
    for count in unpack(result.token_counts).tolist():
        found.append(flat[at : at + count])
        at += count
    assert at == len(flat)
    return found


def test_a_chunk_in_the_middle_gains_nothing(driver: Driver, rows: Any) -> None:
    expected = driver.greedy(5, prompt(1, 40), 1)
    new = rows(0, prompt(1, 40))
    first = driver.run(driver.plan([(new, 0, 25)], new_rows=[new], samples=pack([0])))
    assert tokens_of(first) == [[]]
    assert tokens_of(driver.run(driver.plan([(new, 25, 15)]))) == [expected]


def test_prompts_and_single_tokens_share_a_step(driver: Driver, rows: Any) -> None:
    alone = [driver.greedy(5, prompt(2, 10), 2), driver.greedy(5, prompt(3, 37), 1)]
    old, young = rows(0, prompt(2, 10)), rows(1, prompt(3, 37))
    driver.begin(old)
    plan = driver.plan([(young, 0, 37), (old, 10, 1)], [STORED, driver.number], new_rows=[young])
    assert tokens_of(driver.run(plan)) == [alone[1], [alone[0][1]]]


def test_a_value_takes_the_place_of_a_sample(driver: Driver, rows: Any) -> None:
    given = 77
    expected = driver.greedy(5, [*prompt(4, 10), given], 1)
    new = rows(0, prompt(4, 10))
    driver.begin(new)
    plan = driver.plan([(new, 10, 1)], [VALUE], token_values=pack([given]))
    assert tokens_of(driver.run(plan)) == [expected]


@pytest.mark.parametrize("wrong_at", [0, 1, 2, None])
def test_drafts_are_kept_while_they_are_what_would_have_been_said(driver: Driver, rows: Any, wrong_at: int | None) -> None:
    said = driver.greedy(5, prompt(5, 12), 6)
    new, other = rows(0, prompt(5, 12), logprobs=0), rows(1, prompt(6, 3))
    driver.begin(new, other)
    drafts = list(said[1:4])
    if wrong_at is not None:
        drafts[wrong_at] = (drafts[wrong_at] + 1) % VOCABULARY
    sources = [driver.number, driver.number]
    plan = driver.plan([(new, 12, 4), (other, 3, 1)], sources, draft_counts=pack([3, 0]), drafts=pack(drafts))
    result = driver.run(plan)
    kept = said[1 : 2 + (3 if wrong_at is None else wrong_at)]
    assert tokens_of(result)[0] == kept
    assert len(tokens_of(result)[1]) == 1
    assert unpack(result.logprob_rows).tolist() == [0] * len(kept)
    assert result.logprobs is not None
    assert unpack(result.logprobs.ids).tolist() == kept
    at = 12 + len(kept)
    if wrong_at is not None and wrong_at < 2:  # of what stands behind the first wrong draft nothing was computed that is worth anything
        late = driver.plan([(new, at + 1, 1)], [VALUE], token_values=pack([5]))
        assert "never computed" in driver.run(late).errors[0].message
        driver.number -= 1
    assert tokens_of(driver.run(driver.plan([(new, at, 1)], [driver.number]))) == [[said[1 + len(kept)]]]


def test_a_draft_that_is_the_workers_own_is_an_error_of_its_row(driver: Driver, rows: Any) -> None:
    new, other = rows(0, prompt(5, 12)), rows(1, prompt(6, 3))
    driver.begin(new, other)
    result = driver.run(driver.plan([(new, 12, 2), (other, 3, 1)], [driver.number] * 2, draft_counts=pack([1, 0]), drafts=pack([-1])))
    assert [error.row for error in result.errors] == [0]
    assert [len(each) for each in tokens_of(result)] == [0, 1]


def test_masks_decide_what_may_be_said(driver: Driver, rows: Any) -> None:
    masked, forced, free = rows(0, prompt(7, 9)), rows(1, prompt(8, 9)), rows(2, prompt(9, 9))
    words = (VOCABULARY + 31) // 32
    bits = np.zeros((1, words), np.int32)
    bits[0, 42 // 32] = 1 << (42 % 32)
    masks = StepMasks(driver.number + 1, pack([0]), words, bits.tobytes(), pack([1]), pack([43]))
    expected = driver.greedy(5, prompt(9, 9), 1)
    masks.step = driver.number + 1
    plan = driver.plan([(new, 0, 9) for new in (masked, forced, free)], new_rows=[masked, forced, free], awaits_masks=True)
    assert tokens_of(driver.run(plan, masks)) == [[42], [43], expected]
    result = driver.run(driver.plan([(forced, 9, 1)], [driver.number]))
    assert result.errors == []
    assert tokens_of(result) == [driver.greedy(5, [*prompt(8, 9), 43], 1)]


def test_few_samples_at_a_time_are_the_same(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of() -> StepResult:
        news = [
            driver.new(row, prompt(20 + row, 5 + row), logprobs=row % 2 or None, prompt_logprobs=2 if row == 3 else None)
            for row in range(7)
        ]
        result = driver.begin(*news)
        driver.end(*news)
        result.timings, result.step, result.epochs = None, 0, b""
        for chunk in result.prompt_logprobs:
            chunk.epoch = 0
        return result

    whole = all_of()
    assert unpack(whole.logprob_rows).tolist() == [1, 3, 5]
    assert [(chunk.row, chunk.position) for chunk in whole.prompt_logprobs] == [(3, 1)]
    monkeypatch.setattr(sampling, "SAMPLE_ROWS", 2)
    assert all_of() == whole


def test_one_wrong_row_ends_alone(driver: Driver, rows: Any) -> None:
    """Each kind of row that cannot be, beside one that can."""
    expected = driver.greedy(5, prompt(10, 10), 2)
    right, wrong = rows(0, prompt(10, 10)), rows(1, prompt(11, 10))
    driver.begin(right, wrong)
    last = driver.number

    def with_wrong(start: int, count: int, source: int, epoch: int) -> StepResult:
        nonlocal last
        again = driver.plan([(right, 10, 1), (wrong, start, count)], [last, source])
        again.epochs = pack([right.epoch, epoch])
        result = driver.run(again)
        assert tokens_of(result) == [[expected[1]], []]
        assert [(error.row, error.epoch) for error in result.errors] == [(1, epoch)]
        # the right row steps back to be computed again
        driver.worker._execution._rows.known[0] = 11
        driver.worker._execution._rows.sampled_steps[0] = last
        return result

    assert "another request" in with_wrong(10, 1, last, wrong.epoch + 100).errors[0].message
    assert "never computed" in with_wrong(11, 1, last, wrong.epoch).errors[0].message
    assert "does not know the tokens" in with_wrong(10, 1, last + 50, wrong.epoch).errors[0].message
    assert "does not know the tokens" in with_wrong(9, 1, last, wrong.epoch).errors[0].message
    assert "no row can have" in with_wrong(10, 300, STORED, wrong.epoch).errors[0].message
    assert "no row can have" in with_wrong(10, 0, STORED, wrong.epoch).errors[0].message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"media": [MediaReference("h", "image", 0, 1)]}, "media"),
        ({"embeddings": b"1234"}, "embeddings"),
        ({"adapter": 1}, "adapter"),
        ({"pooling": PoolingParams()}, "pooling"),
        ({"token_ids": b""}, "between 1 and"),
    ],
)
def test_a_row_that_cannot_begin_ends_alone(driver: Driver, rows: Any, change: dict[str, Any], message: str) -> None:
    right, wrong = rows(0, prompt(12, 10)), rows(1, prompt(13, 10))
    for name, value in change.items():
        setattr(wrong, name, value)
    result = driver.begin(right, wrong)
    assert [len(tokens) for tokens in tokens_of(result)] == [1, 0]
    assert [error.row for error in result.errors] == [1]
    assert message in result.errors[0].message


def test_not_a_number_in_one_rows_cache_ends_that_row(driver: Driver, rows: Any) -> None:
    expected = driver.greedy(5, prompt(14, 20), 2)
    right, wrong = rows(0, prompt(14, 20)), rows(1, prompt(15, 20))
    driver.begin(right, wrong)
    driver.worker._cache._blocks[1 + BLOCKS_PER_ROW] = 0xFF
    result = driver.run(driver.plan([(wrong, 20, 1), (right, 20, 1)], [driver.number] * 2))
    assert tokens_of(result) == [[], [expected[1]]]
    assert "not finite" in result.errors[0].message
    driver.worker._cache._blocks[1 + BLOCKS_PER_ROW] = 0


def test_garbage_in_a_block_that_is_new_does_not_matter(driver: Driver, rows: Any) -> None:
    expected = driver.greedy(5, prompt(16, 20), 1)
    driver.worker._cache._blocks[1 : 1 + BLOCKS_PER_ROW] = 0xFF
    assert tokens_of(driver.begin(rows(0, prompt(16, 20)))) == [expected]


def test_a_step_that_fails_whole_says_so_and_the_next_one_runs(driver: Driver, rows: Any) -> None:
    expected = driver.greedy(5, prompt(17, 20), 1)
    new = rows(0, prompt(17, 20))
    new.block_tables = [pack([0, 0])]
    result = driver.begin(new)
    assert "null block" in (result.failure or "")
    assert result.tokens == b""
    assert tokens_of(driver.begin(rows(1, prompt(17, 20)))) == [expected]


def test_blocks_are_zeroed_and_copied_before_the_step(driver: Driver, rows: Any) -> None:
    blocks = driver.worker._cache._blocks
    blocks[100:104] = 5
    blocks[101] = 6
    new = rows(0, prompt(18, 4))
    change = GroupChange(zeroings=pack([100]), copy_sources=pack([101]), copy_destinations=pack([103]))
    driver.begin(new, groups=[change])
    assert [int(blocks[block].sum()) // blocks[block].numel() for block in range(100, 104)] == [0, 6, 5, 6]
    failed = driver.run(driver.plan([(new, 4, 1)], [driver.number], groups=[GroupChange(save_rows=pack([0]), save_blocks=pack([9]))]))
    assert "recurrent" in (failed.failure or "")
