"""Warm-up: a few small steps before the engine is ready, so that every kernel is compiled and every library has allocated what it keeps."""

from collections.abc import Callable

from octavo.config.config import Config
from octavo.errors import EngineDeadError
from octavo.kvcache.specs import CachePlan
from octavo.protocol.columns import pack
from octavo.protocol.sampling_params import SamplingParams
from octavo.protocol.step import STORED, GroupChange, NewRow, StepPlan, StepResult

_PROMPT = 17  # more than a tile, and not a multiple of one


def num_blocks(config: Config, num_groups: int) -> int:
    """Blocks that a cache must have for warm_up, the null block included."""
    return 1 + num_groups * 2 * (_PROMPT // config.cache.block_size + 1)


def warm_up(run: Callable[[StepPlan], StepResult], config: Config, plan: CachePlan) -> None:
    """A step of prompts and one of single tokens, sampled in the ways that need kernels of their own. Raises EngineDeadError."""
    scheduler = config.scheduler
    num_rows = min(2, scheduler.max_num_seqs, scheduler.max_num_batched_tokens)
    count = min(_PROMPT, config.model.max_model_len - 1, scheduler.max_num_batched_tokens // num_rows)
    if count < 1:
        return  # contexts of one token: nothing but that token could be computed
    params = (
        SamplingParams(temperature=0.0, prompt_logprobs=0),
        SamplingParams(temperature=1.0, top_k=8, top_p=0.9, min_p=0.01, logprobs=1),
    )
    rows = list(range(num_rows))
    new_rows = [_new_row(row, count, params[row], config, plan) for row in rows]
    _step(run, _plan(0, rows, 0, count, STORED, new_rows, plan))
    _step(run, _plan(1, rows, count, 1, 0, [], plan))
    _step(run, StepPlan(2, ended_rows=pack(rows)))


def _new_row(row: int, count: int, params: SamplingParams, config: Config, plan: CachePlan) -> NewRow:
    each = _PROMPT // config.cache.block_size + 1
    tables = [pack(range(1 + (2 * group + row) * each, 1 + (2 * group + row + 1) * each)) for group in range(len(plan.groups))]
    tokens = [token % config.model.vocab_size for token in range(count)]
    return NewRow(row, 0, "warm-up", pack(tokens), count, 0, tables, sampling=params, seed=row)


def _plan(step: int, rows: list[int], start: int, count: int, source: int, new_rows: list[NewRow], plan: CachePlan) -> StepPlan:
    same = len(rows)
    return StepPlan(
        step,
        new_rows=new_rows,
        rows=pack(rows),
        epochs=pack([0] * same),
        starts=pack([start] * same),
        counts=pack([count] * same),
        samples=pack([1] * same),
        token_sources=pack([source] * same),
        token_values=pack([0] * same),
        groups=[GroupChange() for _ in plan.groups],
    )


def _step(run: Callable[[StepPlan], StepResult], plan: StepPlan) -> None:
    result = run(plan)
    if result.failure is not None:
        raise EngineDeadError(f"the model cannot compute: {result.failure}", "the log above has where it failed")
    if result.errors:  # every request would end like this
        raise EngineDeadError(
            f"the model cannot compute: {result.errors[0].message}",
            "its activations may be too large for float16: pass --dtype bfloat16; or the weights are damaged: fetch them again",
        )
