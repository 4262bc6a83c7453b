"""The scheduler by hand: what a plan says in every column, and what each kind of result does."""

import pytest

from octavo.errors import EngineDeadError, RequestError
from octavo.kvcache.specs import StateSpec
from octavo.protocol.columns import pack, pack_floats, unpack
from octavo.protocol.messages import FinishReason
from octavo.protocol.step import STORED, LogprobColumns, PromptLogprobChunk, RowError, StepResult
from tests.unit.scheduler.drive import FULL, make, request, result, rows, turn

SLIDING = StateSpec(kind="sliding", bytes_per_token=1, window=4)
RECURRENT = StateSpec(kind="recurrent", bytes_per_sequence=4)


def test_columns_of_a_first_step_and_the_next() -> None:
    scheduler = make(FULL, SLIDING)
    scheduler.add(request("a", 7, seed=9, eos_token_ids=[2], stop_token_ids=[3], max_tokens=6))
    plan = scheduler.plan()
    assert plan is not None
    new = plan.new_rows[0]
    assert (new.request_id, new.computed, new.num_prompt_tokens, new.seed, new.stop_ids) == ("a", 0, 7, 9, [2, 3])
    assert [len(unpack(table)) for table in new.block_tables] == [2, 2]
    assert not any(change.append_rows for change in plan.groups)
    assert rows(plan) == {new.row: (0, 7)}
    assert unpack(plan.samples).tolist() == [1]
    assert unpack(plan.token_sources).tolist() == [STORED]
    assert unpack(plan.epochs).tolist() == [new.epoch]
    scheduler.update(result(plan))
    plan = scheduler.plan()
    assert plan is not None
    assert not plan.new_rows
    assert rows(plan) == {new.row: (7, 1)}
    assert unpack(plan.token_sources).tolist() == [STORED]
    assert not any(change.append_rows for change in plan.groups)
    scheduler.update(result(plan))
    plan = scheduler.plan()
    assert plan is not None
    assert rows(plan) == {new.row: (8, 1)}
    for change in plan.groups:
        assert unpack(change.append_rows).tolist() == [0]
        assert unpack(change.append_counts).tolist() == [1]
        assert len(unpack(change.append_blocks)) == 1


def test_an_unknown_sample_is_named_by_its_step() -> None:
    scheduler = make()
    scheduler.add(request("a", 5, max_tokens=3))
    first = scheduler.plan()
    second = scheduler.plan()
    assert first is not None
    assert second is not None
    assert unpack(second.token_sources).tolist() == [first.step]
    assert list(rows(second).values()) == [(5, 1)]
    scheduler.update(result(first))
    third = scheduler.plan()
    assert third is not None
    assert unpack(third.token_sources).tolist() == [second.step]
    scheduler.update(result(second))
    assert scheduler.plan() is None  # the third token, which is on its way, is the last
    outputs = scheduler.update(result(third))
    assert outputs[0].finish_reason == FinishReason.LENGTH
    assert not scheduler.has_work
    assert scheduler.plan() is None


def test_chunks_and_budget() -> None:
    scheduler = make(max_num_batched_tokens=8)
    scheduler.add(request("a", 20, arrival_s=0.0))
    scheduler.add(request("b", [90, 91, 92], arrival_s=1.0))
    seen = []
    for _ in range(3):
        plan = scheduler.plan()
        assert plan is not None
        seen.append((list(rows(plan).values()), unpack(plan.samples).tolist()))
        scheduler.update(result(plan))
    assert seen == [([(0, 8)], [0]), ([(8, 8)], [0]), ([(16, 4), (0, 3)], [1, 1])]


def test_running_requests_come_first_in_order_of_priority_and_arrival() -> None:
    scheduler = make(policy="priority", max_num_batched_tokens=12)
    scheduler.add(request("late", [70, 71], arrival_s=2.0, priority=1))
    scheduler.add(request("early", [80, 81], arrival_s=1.0, priority=1))
    scheduler.add(request("urgent", [90, 91], arrival_s=3.0, priority=0))
    plan = scheduler.plan()
    assert plan is not None
    assert [new.request_id for new in plan.new_rows] == ["urgent", "early", "late"]
    scheduler.update(result(plan))
    scheduler.add(request("last", [60, 61], arrival_s=0.0, priority=-1))
    plan = scheduler.plan()
    assert plan is not None
    assert [r.id for r in scheduler.running] == ["last", "urgent", "early", "late"]
    assert unpack(plan.counts).tolist() == [2, 1, 1, 1]
    scheduler.update(result(plan))
    scheduler.add(request("equal", [50, 51], arrival_s=0.5, priority=1))
    plan = scheduler.plan()
    assert plan is not None
    assert [new.request_id for new in plan.new_rows] == ["equal"]
    assert unpack(plan.counts).tolist() == [1, 1, 1, 1, 2]  # of the same priority who runs goes before who waits


def test_higher_priority_takes_the_row_of_the_last_of_the_lower() -> None:
    scheduler = make(policy="priority", max_num_seqs=2)
    scheduler.add(request("a", [1, 2], arrival_s=0.0, priority=5))
    scheduler.add(request("b", [3, 4], arrival_s=1.0, priority=5))
    turn(scheduler)
    scheduler.add(request("c", [5, 6], arrival_s=2.0, priority=5))
    scheduler.add(request("urgent", [7, 8], arrival_s=3.0, priority=1))
    plan = scheduler.plan()
    assert plan is not None
    assert [new.request_id for new in plan.new_rows] == ["urgent"]
    assert unpack(plan.ended_rows).tolist() == [plan.new_rows[0].row]
    assert [r.id for r in scheduler.running] == ["urgent", "a"]
    scheduler.update(result(plan))
    scheduler.abort("urgent")
    plan = scheduler.plan()
    assert plan is not None
    assert [new.request_id for new in plan.new_rows] == ["b"]  # before c, which came later
    assert scheduler.take_stats().num_preemptions == 1


def test_nobody_is_preempted_for_a_request_that_would_not_fit_even_so() -> None:
    scheduler = make(policy="priority", num_blocks=12, max_num_seqs=4, max_model_len=40)  # 11 blocks of 4 tokens
    scheduler.add(request("high", [1] * 20, arrival_s=0.0, priority=0, max_tokens=12))  # 5
    scheduler.add(request("low", [2] * 8, arrival_s=1.0, priority=9, max_tokens=8))  # 2
    scheduler.add(request("last", [3] * 8, arrival_s=1.5, priority=9, max_tokens=8))  # 2
    turn(scheduler)
    scheduler.add(request("large", [4] * 28, arrival_s=2.0, priority=1, max_tokens=4))  # 7
    scheduler.add(request("small", [5] * 8, arrival_s=3.0, priority=1, max_tokens=4))  # 2
    plan = scheduler.plan()
    assert plan is not None
    assert [new.request_id for new in plan.new_rows] == ["small"]
    assert [r.id for r in scheduler.running] == ["high", "small", "low"]  # one of the lower was enough
    scheduler.update(result(plan))
    scheduler.abort("high")
    scheduler.abort("small")
    plan = scheduler.plan()
    assert plan is not None
    assert [new.request_id for new in plan.new_rows] == ["large"]
    assert [r.id for r in scheduler.running] == ["large", "low"]


def test_small_requests_overtake_a_large_one_a_few_times() -> None:
    scheduler = make(num_blocks=11, max_num_seqs=8, max_model_len=40)
    scheduler.add(request("a", [1] * 20, arrival_s=0.0, max_tokens=20))
    turn(scheduler)
    scheduler.add(request("large", [2] * 28, arrival_s=1.0, max_tokens=4))
    overtakers = 0
    for number in range(100):
        scheduler.add(request(f"s{number}", [3, number], arrival_s=2.0 + number, max_tokens=1))
        overtakers += len(turn(scheduler)) - 1
        if overtakers == scheduler.most_overtaken:
            break
        assert overtakers == number + 1
    scheduler.add(request("late", [4], arrival_s=200.0, max_tokens=1))
    plan = scheduler.plan()
    assert plan is not None
    assert not plan.new_rows
    scheduler.update(result(plan))
    scheduler.abort("a")
    plan = scheduler.plan()
    assert plan is not None
    assert [new.request_id for new in plan.new_rows] == ["large", "late"]


def test_a_preempted_request_is_not_overtaken() -> None:
    scheduler = make(num_blocks=7, max_num_seqs=4)
    scheduler.add(request("a", [1] * 8, arrival_s=0.0, max_tokens=12))
    scheduler.add(request("b", [2] * 12, arrival_s=1.0, max_tokens=8))
    turn(scheduler)
    turn(scheduler)  # b needs a block and gives its own back
    assert [r.id for r in scheduler.running] == ["a"]
    scheduler.add(request("c", [3], arrival_s=2.0, max_tokens=1))
    for _ in range(3):
        plan = scheduler.plan()
        assert plan is not None
        assert "c" not in [new.request_id for new in plan.new_rows]
        scheduler.update(result(plan))


def test_preemption_takes_the_last_and_brings_it_back_first() -> None:
    scheduler = make(num_blocks=7, max_num_seqs=4)  # 6 blocks of 4 tokens
    scheduler.add(request("a", [1] * 8, arrival_s=0.0, max_tokens=12))
    scheduler.add(request("b", [2] * 8, arrival_s=1.0, max_tokens=12))
    scheduler.add(request("c", [3] * 3, arrival_s=2.0, max_tokens=12))
    plan = scheduler.plan()
    assert plan is not None
    assert len(plan.new_rows) == 3
    scheduler.update(result(plan))
    second = scheduler.plan()  # a takes the last block; b needs one, so c goes
    assert second is not None
    assert [r.id for r in scheduler.running] == ["a", "b"]
    assert scheduler.num_waiting == 1
    assert not second.new_rows
    assert scheduler.take_stats().num_preemptions == 1
    assert scheduler.waiting.first() is scheduler.requests["c"]
    scheduler.add(request("d", [4], arrival_s=3.0, max_tokens=1))
    scheduler.update(result(second))
    third = scheduler.plan()
    assert third is not None
    assert unpack(third.ended_rows).tolist() == []
    assert unpack(second.ended_rows).tolist() == [2]
    for name in ("a", "b"):
        scheduler.abort(name)
    scheduler.update(result(third))
    fourth = scheduler.plan()
    assert fourth is not None
    assert [new.request_id for new in fourth.new_rows] == ["c", "d"]
    resumed = fourth.new_rows[0]
    assert unpack(resumed.token_ids).tolist() == [3, 3, 3, 50]
    assert resumed.num_prompt_tokens == 3
    outputs = scheduler.update(result(fourth))
    assert [event.kind for event in outputs[0].events] == ["preempted", "scheduled"]


def test_the_asker_preempts_itself_when_it_is_the_last() -> None:
    scheduler = make(num_blocks=5)
    scheduler.add(request("a", [1] * 7, arrival_s=0.0, max_tokens=6))
    scheduler.add(request("b", [2] * 8, arrival_s=1.0, max_tokens=4))
    turn(scheduler)
    plan = scheduler.plan()
    assert plan is not None
    assert [r.id for r in scheduler.running] == ["a"]
    assert scheduler.requests["b"].row < 0


def test_a_prefix_is_shared_from_the_next_plan_on() -> None:
    scheduler = make(max_num_seqs=4)
    prompt = list(range(1, 12))
    scheduler.add(request("a", prompt, arrival_s=0.0))
    scheduler.add(request("b", prompt, arrival_s=1.0))
    first = scheduler.plan()
    assert first is not None
    assert [new.computed for new in first.new_rows] == [0, 0]
    scheduler.add(request("c", prompt, arrival_s=2.0))
    scheduler.add(request("d", prompt, arrival_s=3.0, cache_salt="x"))
    second = scheduler.plan()  # the first has not run; it will have before this one does
    assert second is not None
    assert [new.computed for new in second.new_rows] == [8, 0]
    tables = {new.request_id: unpack(new.block_tables[0]).tolist() for plan in (first, second) for new in plan.new_rows}
    assert tables["c"][:2] == tables["a"][:2] != tables["b"][:2]
    outputs = [*scheduler.update(result(first)), *scheduler.update(result(second))]
    told = {output.request_id: output.num_cached_tokens for output in outputs if output.num_cached_tokens is not None}
    assert told == {"a": 0, "b": 0, "c": 8, "d": 0}
    stats = scheduler.take_stats()
    assert (stats.prefix_queries, stats.prefix_hits) == (44, 8)


@pytest.mark.parametrize("values", [{"skip_reading_prefix_cache": True}, {"prompt_logprobs": 0}])
def test_some_requests_do_not_read_the_prefix_cache(values: dict[str, object]) -> None:
    scheduler = make()
    scheduler.add(request("a", 9, max_tokens=1))
    turn(scheduler)
    scheduler.add(request("b", 9, **values))
    plan = scheduler.plan()
    assert plan is not None
    assert plan.new_rows[0].computed == 0


def test_stale_results_are_dropped() -> None:
    scheduler = make(max_num_seqs=1)
    scheduler.add(request("a", [1, 2], arrival_s=0.0))
    first = scheduler.plan()
    assert first is not None
    assert scheduler.abort("a")[0].finish_reason == FinishReason.ABORT
    assert scheduler.cache.pool.usage == 0.0
    scheduler.add(request("b", [3, 4, 5], arrival_s=1.0))
    second = scheduler.plan()
    assert second is not None
    assert unpack(second.ended_rows).tolist() == [0]
    assert (second.new_rows[0].row, second.new_rows[0].epoch) == (0, unpack(first.epochs)[0] + 1)
    assert scheduler.update(result(first)) == []
    assert scheduler.update(result(second))[0].token_ids == [50]


def test_a_failing_row_ends_alone() -> None:
    scheduler = make()
    scheduler.add(request("a", [1, 2], arrival_s=0.0))
    scheduler.add(request("b", [3, 4], arrival_s=1.0))
    plan = scheduler.plan()
    assert plan is not None
    row, epoch = plan.new_rows[0].row, plan.new_rows[0].epoch
    values = StepResult(plan.step, plan.rows, plan.epochs, pack([0, 1]), pack([7]), errors=[RowError(row, epoch, "logits are NaN")])
    outputs = {output.request_id: output for output in scheduler.update(values)}
    assert (outputs["a"].finish_reason, outputs["a"].error) == (FinishReason.ERROR, "logits are NaN")
    assert outputs["b"].token_ids == [7]
    assert outputs["b"].finish_reason is None
    assert scheduler.num_running == 1


def test_a_row_without_the_token_it_should_have_ends() -> None:
    scheduler = make()
    scheduler.add(request("a", [1, 2]))
    plan = scheduler.plan()
    assert plan is not None
    outputs = scheduler.update(StepResult(plan.step, plan.rows, plan.epochs, pack([0]), b""))
    assert outputs[0].error == "the worker gave no token"


def test_a_failed_step_is_tried_once_more() -> None:
    scheduler = make()
    prompt = list(range(1, 10))
    scheduler.add(request("a", prompt))
    assert turn(scheduler, failure="out of luck") == []
    plan = scheduler.plan()
    assert plan is not None
    assert plan.new_rows[0].computed == 0
    scheduler.update(result(plan))
    assert turn(scheduler, failure="again") == []  # at another token: it has gained one meanwhile
    outputs = turn(scheduler, failure="again")
    assert outputs[0].finish_reason == FinishReason.ERROR
    assert outputs[0].error == "the step failed twice: again"
    assert not scheduler.has_work
    assert scheduler.cache.pool.usage == 0.0


def test_who_took_over_a_failed_steps_blocks_begins_again() -> None:
    scheduler = make()
    prompt = list(range(1, 10))
    scheduler.add(request("a", prompt, arrival_s=0.0))
    first = scheduler.plan()
    scheduler.add(request("b", prompt, arrival_s=1.0))
    scheduler.add(request("c", [90, 91], arrival_s=2.0))
    second = scheduler.plan()
    assert first is not None
    assert second is not None
    assert second.new_rows[0].computed == 8
    assert scheduler.update(result(first, failure="boom")) == []
    assert [r.id for r in scheduler.running] == ["c"]
    assert [output.request_id for output in scheduler.update(result(second))] == ["c"]
    third = scheduler.plan()
    assert third is not None
    assert [(new.request_id, new.computed) for new in third.new_rows] == [("a", 0), ("b", 0)]


def test_told_drafts_are_verified_and_rejected_ones_computed_again() -> None:
    scheduler = make()
    scheduler.add(request("a", 5))
    turn(scheduler, draft_counts=pack([3]), drafts=pack([60, 61, 62]))
    plan = scheduler.plan()
    assert plan is not None
    assert list(rows(plan).values()) == [(5, 4)]
    assert (unpack(plan.draft_counts).tolist(), unpack(plan.drafts).tolist()) == ([3], [60, 61, 62])
    columns = scheduler.requests["a"].tables.columns
    outputs = scheduler.update(StepResult(plan.step, plan.rows, plan.epochs, pack([2]), pack([60, 77])))
    assert outputs[0].token_ids == [60, 77]
    a = scheduler.requests["a"]
    assert (a.known, a.confirmed, a.planned, a.pending, a.tables.columns) == (8, 7, 7, 0, columns)
    assert list(rows(scheduler.plan()).values()) == [(7, 1)]


def test_the_workers_own_drafts_are_planned_as_if_accepted() -> None:
    scheduler = make(drafts_per_step=2)
    scheduler.add(request("a", 5))
    first, second, third = scheduler.plan(), scheduler.plan(), scheduler.plan()
    assert first is not None
    assert second is not None
    assert third is not None
    assert [next(iter(rows(plan).values())) for plan in (first, second, third)] == [(0, 5), (5, 3), (8, 3)]
    assert unpack(second.drafts).tolist() == [-1, -1]
    assert unpack(third.token_sources).tolist() == [second.step]
    scheduler.update(result(first))
    scheduler.update(StepResult(second.step, second.rows, second.epochs, pack([1]), pack([9])))
    a = scheduler.requests["a"]
    assert (a.known, a.confirmed, a.planned) == (7, 6, 9)  # the third step really computes 6 .. 9
    scheduler.update(StepResult(third.step, third.rows, third.epochs, pack([3]), pack([9, 9, 9])))
    assert (a.known, a.confirmed, a.planned, a.pending) == (10, 9, 9, 0)


def test_drafts_stop_at_the_end_and_with_states_that_cannot_be_rewound() -> None:
    scheduler = make()
    scheduler.add(request("a", 5, max_tokens=3))
    turn(scheduler, draft_counts=pack([3]), drafts=pack([60, 61, 62]))
    plan = scheduler.plan()
    assert list(rows(plan).values()) == [(5, 2)]
    scheduler = make(FULL, RECURRENT)
    scheduler.add(request("a", 4))
    turn(scheduler, draft_counts=pack([3]), drafts=pack([60, 61, 62]))
    assert list(rows(scheduler.plan()).values()) == [(4, 1)]


def test_tokens_after_a_stop_are_dropped() -> None:
    scheduler = make()
    scheduler.add(request("a", 5, stop_token_ids=[61]))
    turn(scheduler, draft_counts=pack([3]), drafts=pack([60, 61, 62]))
    plan = scheduler.plan()
    assert plan is not None
    outputs = scheduler.update(StepResult(plan.step, plan.rows, plan.epochs, pack([4]), pack([60, 61, 62, 63])))
    assert (outputs[0].token_ids, outputs[0].finish_reason, outputs[0].stop_reason) == ([60, 61], FinishReason.STOP, 61)


def test_recurrent_states_are_zeroed_saved_and_restored() -> None:
    scheduler = make(FULL, RECURRENT, max_num_batched_tokens=64)
    prompt = list(range(1, 12))
    scheduler.add(request("a", prompt, max_tokens=1))
    plan = scheduler.plan()
    assert plan is not None
    assert list(rows(plan).values()) == [(0, 8)]
    live = unpack(plan.new_rows[0].block_tables[1]).tolist()
    assert len(live) == 1
    assert unpack(plan.groups[1].zeroings).tolist() == live
    snapshot = unpack(plan.groups[1].save_blocks).tolist()
    assert unpack(plan.groups[1].save_rows).tolist() == [0]
    assert snapshot != live
    scheduler.update(result(plan))
    turn(scheduler)
    scheduler.add(request("b", [*prompt, 77], max_tokens=1))
    plan = scheduler.plan()
    assert plan is not None
    assert plan.new_rows[0].computed == 8
    assert unpack(plan.groups[1].restore_blocks).tolist() == snapshot
    assert not plan.groups[1].zeroings


def test_logprobs_are_cut_by_row_and_prompt_logprobs_told_once() -> None:
    scheduler = make(num_blocks=40, max_num_batched_tokens=4)
    scheduler.add(request("a", 6, logprobs=1, prompt_logprobs=0, max_tokens=1))
    plan = scheduler.plan()
    assert plan is not None
    row, epoch = plan.new_rows[0].row, plan.new_rows[0].epoch
    outputs = scheduler.update(result(plan, prompt_logprobs=[PromptLogprobChunk(row, epoch, 1, columns([2, 3, 4, 5]))]))
    assert [(position, unpack(c.ids).tolist()) for position, c in outputs[0].prompt_logprobs] == [(1, [2, 3, 4, 5])]
    assert outputs[0].num_cached_tokens == 0
    assert not outputs[0].token_ids
    plan = scheduler.plan()
    assert plan is not None
    told = [PromptLogprobChunk(row, epoch, 4, columns([5, 6]))]
    outputs = scheduler.update(result(plan, 9, prompt_logprobs=told, logprob_rows=pack([0]), logprobs=columns([9])))
    assert [(position, unpack(c.ids).tolist()) for position, c in outputs[0].prompt_logprobs] == [(5, [6])]
    assert outputs[0].logprobs is not None
    assert unpack(outputs[0].logprobs.ids).tolist() == [9]


def test_a_prompt_that_is_only_scored_may_fill_the_context_and_is_not_sampled() -> None:
    scheduler = make(num_blocks=9, max_model_len=32, max_num_batched_tokens=31)
    scheduler.add(request("a", 32, prompt_logprobs=0, max_tokens=0))
    first = scheduler.plan()
    assert first is not None
    assert scheduler.plan() is not None  # its last token, before the first result is here
    assert scheduler.plan() is None
    assert not any(unpack(step.plan([]).samples).any() for step in scheduler._outstanding)
    row, epoch = first.new_rows[0].row, first.new_rows[0].epoch
    outputs = scheduler.update(result(first, prompt_logprobs=[PromptLogprobChunk(row, epoch, 1, columns(list(range(2, 33))))]))
    assert [output.finish_reason for output in outputs] == [None]
    (last,) = scheduler.update(result(scheduler._outstanding[0].plan([])))
    assert (last.token_ids, last.finish_reason) == ([], FinishReason.LENGTH)
    assert not scheduler.has_work
    assert scheduler.cache.pool.usage == 0


def columns(ids: list[int]) -> LogprobColumns:
    return LogprobColumns(pack([1] * len(ids)), pack(ids), pack_floats([-1.0] * len(ids)), pack([1] * len(ids)))


def test_requests_that_can_never_fit_are_refused() -> None:
    scheduler = make(num_blocks=5, max_model_len=32)
    for wrong, message in (
        (request("a", 32), "32 tokens, and max_model_len 32"),
        (request("a", []), "empty"),
        (request("a", 12, max_tokens=8), "can grow to 20 tokens"),
        (request("a", 3, adapter="lora"), "serves no adapters"),
    ):
        with pytest.raises(RequestError, match=message) as caught:
            scheduler.add(wrong)
        assert caught.value.parameter is not None
    scheduler.add(request("a", 12, max_tokens=5))  # 16 tokens are computed, in the 4 blocks that there are
    with pytest.raises(RequestError, match="here already"):
        scheduler.add(request("a", 3))
    assert scheduler.num_waiting == 1
    with pytest.raises(RequestError, match="a step computes at most 4"):
        make(chunked_prefill=False, max_num_batched_tokens=4).add(request("a", 5))


def test_a_request_alone_uses_the_whole_pool() -> None:
    scheduler = make(num_blocks=5, max_model_len=32)
    scheduler.add(request("a", 12, max_tokens=5))
    outputs = []
    while scheduler.has_work:
        outputs += turn(scheduler)
    assert outputs[-1].finish_reason == FinishReason.LENGTH
    assert scheduler.take_stats().num_preemptions == 0


def test_aborting_while_waiting_leaves_nothing() -> None:
    scheduler = make(max_num_seqs=1)
    for i in range(300):
        scheduler.add(request(f"r{i}", [1, 2], arrival_s=float(i)))
    turn(scheduler)
    for i in range(1, 299):
        assert scheduler.abort(f"r{i}")[0].finish_reason == FinishReason.ABORT
    assert scheduler.num_waiting == 1
    assert len(scheduler.waiting._heap) < 100
    assert scheduler.abort("r7") == []
    scheduler.abort("r0")
    plan = scheduler.plan()
    assert plan is not None
    assert plan.new_rows[0].request_id == "r299"


def test_a_result_for_other_rows_is_refused() -> None:
    scheduler = make()
    scheduler.add(request("a"))
    plan = scheduler.plan()
    assert plan is not None
    with pytest.raises(EngineDeadError, match="other rows"):
        scheduler.update(StepResult(plan.step, pack([5]), plan.epochs, plan.samples, pack([1])))


def test_stats_are_told_once() -> None:
    scheduler = make()
    scheduler.add(request("a", 5, max_tokens=2))
    turn(scheduler)
    stats = scheduler.take_stats()
    assert (stats.prompt_tokens, stats.generation_tokens, stats.step_tokens, stats.num_running) == (5, 1, [5], 1)
    assert stats.kv_cache_usage == pytest.approx(2 / 99)
    assert scheduler.take_stats().step_tokens == []
