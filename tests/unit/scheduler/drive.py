"""A scheduler driven by hand: plans looked at, results made up."""

from typing import Any

from octavo.kvcache.plan import plan_cache
from octavo.kvcache.specs import LayerState, StateSpec
from octavo.protocol.columns import pack, unpack
from octavo.protocol.messages import EngineOutput, EngineRequest
from octavo.protocol.sampling_params import SamplingParams
from octavo.protocol.step import StepPlan, StepResult
from octavo.scheduler.scheduler import Scheduler
from tests.simulation.configs import make_config

FULL = StateSpec(kind="full", bytes_per_token=1)


def make(*specs: StateSpec, num_blocks: int = 100, drafts_per_step: int = 0, **values: Any) -> Scheduler:
    config = make_config(**values)
    states = [LayerState(str(i), spec) for i, spec in enumerate(specs or (FULL,))]
    plan = plan_cache(states, config.cache.block_size, 0, num_blocks_override=num_blocks)
    return Scheduler(config, plan, clock=lambda: 7.0, drafts_per_step=drafts_per_step, hash_seed="test")


def request(name: str, prompt: int | list[int] = 5, arrival_s: float = 0.0, **values: Any) -> EngineRequest:
    fields = {name: values.pop(name) for name in list(values) if name in EngineRequest.__struct_fields__}
    tokens = list(range(1, prompt + 1)) if isinstance(prompt, int) else prompt
    return EngineRequest(name, pack(tokens), SamplingParams(**{"max_tokens": 20, **values}), arrival_s, **fields)


def rows(plan: StepPlan | None) -> dict[int, tuple[int, int]]:
    """Of each row its start and count."""
    assert plan is not None
    return dict(zip(unpack(plan.rows).tolist(), zip(unpack(plan.starts).tolist(), unpack(plan.counts).tolist())))


def result(plan: StepPlan, *tokens: int, **values: Any) -> StepResult:
    """One token for each row that samples, 50 where none is given."""
    samples = unpack(plan.samples).tolist()
    given = iter(tokens)
    return StepResult(
        plan.step,
        rows=plan.rows,
        epochs=plan.epochs,
        token_counts=plan.samples,
        tokens=pack([next(given, 50) for is_sample in samples if is_sample]),
        **values,
    )


def turn(scheduler: Scheduler, *tokens: int, **values: Any) -> list[EngineOutput]:
    """Plan a step and take in its result."""
    plan = scheduler.plan()
    assert plan is not None
    return scheduler.update(result(plan, *tokens, **values))
