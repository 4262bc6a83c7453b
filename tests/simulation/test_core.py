"""The engine core: its loops, what ends them, what it answers when called, and what it says about memory."""

import logging
import random
from typing import Any

import pytest

from octavo.config.config import Config
from octavo.engine.core import EngineCore
from octavo.errors import ConfigError, EngineDeadError, MemoryPlanError
from octavo.kvcache.specs import LayerState
from octavo.kvcache.worker_facts import WorkerFacts
from octavo.protocol.columns import pack
from octavo.protocol.messages import Abort, Add, Call, EngineOutput, EngineOutputs, EngineRequest, FinishReason, Reply, Stop, ToCore
from octavo.protocol.sampling_params import SamplingParams
from octavo.protocol.step import StepPlan, StepResult
from tests.simulation.configs import make_config
from tests.simulation.echo_worker import EchoExecutor, Faults
from tests.simulation.world import FULL, ScriptedInbox

STATES = [LayerState("layers.0", FULL)]


def request(name: str, prompt: int = 5, **sampling: Any) -> EngineRequest:
    return EngineRequest(name, pack(range(1, prompt + 1)), SamplingParams(**{"max_tokens": 6, **sampling}), arrival_s=0.0)


class Bench:
    """A core, what it says, and its executor."""

    def __init__(self, config: Config, messages: list[tuple[int, ToCore]], executor: EchoExecutor | None = None) -> None:
        self.said: list[EngineOutputs] = []
        self.replies: list[Reply] = []
        self.executor = executor or EchoExecutor(STATES, Faults(random.Random(0)), 0, False, False)
        self.core = EngineCore(config, self.executor, ScriptedInbox(messages), self.said.append, self.replies.append)

    @property
    def outputs(self) -> list[EngineOutput]:
        return [output for said in self.said for output in said.outputs]


@pytest.fixture(params=[False, True], ids=["plain", "overlapped"])
def config(request: pytest.FixtureRequest) -> Config:
    return make_config(overlapped=request.param, num_blocks_override=40)


def test_answers_and_tells_events_cached_tokens_and_stats(config: Config) -> None:
    bench = Bench(config, [(1, Add(request("a"))), (30, Add(request("b")))])
    bench.core.start()
    bench.core.run()
    first, second = ([o for o in bench.outputs if o.request_id == name] for name in "ab")
    assert [token for o in first for token in o.token_ids] == [token for o in second for token in o.token_ids]
    assert [event.kind for event in first[0].events] == ["queued", "scheduled"]
    assert (first[0].num_cached_tokens, second[0].num_cached_tokens) == (0, 4)
    assert first[-1].finish_reason == FinishReason.LENGTH
    stats = [said.stats for said in bench.said if said.stats is not None]
    assert sum(each.generation_tokens for each in stats) == 12
    assert sum(each.prompt_tokens for each in stats) == 5 + 1
    assert sum(sum(each.step_tokens) for each in stats) == 10 + 6
    assert (stats[-1].num_running, stats[-1].kv_cache_usage) == (0, 0.0)


def test_steps_overlap() -> None:
    depths = []

    class Watching(EchoExecutor):
        def collect(self, timeout_s: float | None = None) -> StepResult | None:
            depths.append(len(self.steps))
            return super().collect(timeout_s)

    for overlapped, deepest in ((False, 1), (True, 2)):
        depths.clear()
        executor = Watching(STATES, Faults(random.Random(0)), 0, False, False)
        bench = Bench(make_config(overlapped=overlapped, num_blocks_override=40), [(1, Add(request("a")))], executor)
        bench.core.start()
        bench.core.run()
        assert max(depths) == deepest


def test_abort_frees_the_blocks_within_a_step(config: Config) -> None:
    bench = Bench(config, [(1, Add(request("a", max_tokens=50))), (6, Abort(["a", "unknown"]))])
    bench.core.start()
    bench.core.run()
    turn = next(i for i, said in enumerate(bench.said) if any(o.finish_reason == FinishReason.ABORT for o in said.outputs))
    before, ended = bench.said[turn - 1].stats, bench.said[turn].stats
    assert before is not None
    assert before.kv_cache_usage > 0
    assert before.num_running == 1
    assert ended is not None
    assert ended.kv_cache_usage == 0.0
    assert ended.num_running == 0


def test_stop_aborts_what_is_in_flight(config: Config) -> None:
    bench = Bench(config, [(1, Add(request("a", max_tokens=50))), (5, Stop())])
    bench.core.start()
    bench.core.run()
    assert bench.outputs[-1].finish_reason == FinishReason.ABORT


def test_refuses_one_request_and_serves_the_others(config: Config) -> None:
    bench = Bench(config, [(1, Add(request("a", prompt=64))), (1, Add(request("b")))])
    bench.core.start()
    bench.core.run()
    refused = next(o for o in bench.outputs if o.request_id == "a")
    assert refused.finish_reason == FinishReason.ERROR
    assert "64 tokens" in (refused.error or "")
    assert bench.outputs[-1].request_id == "b"
    assert bench.outputs[-1].finish_reason == FinishReason.LENGTH


def test_calls(config: Config) -> None:
    calls = [Call(1, "ping"), Call(2, "worker", ["touch_cache", 3]), Call(3, "nonsense"), Call(4, "reset_prefix_cache"), Call(5, "facts")]
    bench = Bench(config, [(1, Add(request("a", max_tokens=50))), *((4, call) for call in calls)])
    bench.core.start()
    bench.core.run()
    values = {reply.number: reply for reply in bench.replies}
    assert values[1].value is True
    assert values[2].value == ["touch_cache", 3]  # while the request runs: between two steps
    assert "no method 'nonsense'" in (values[3].error or "")
    assert values[4].value is False  # blocks are held
    assert values[5].value["num_blocks"] == 40
    assert bench.outputs[-1].finish_reason == FinishReason.LENGTH


def test_reset_prefix_cache_forgets(config: Config) -> None:
    bench = Bench(config, [(1, Add(request("a"))), (30, Call(1, "reset_prefix_cache")), (31, Add(request("b")))])
    bench.core.start()
    bench.core.run()
    assert bench.replies[0].value is True
    assert next(o for o in bench.outputs if o.request_id == "b").num_cached_tokens == 0


def test_death_of_the_worker_ends_the_loop(config: Config) -> None:
    class Dying(EchoExecutor):
        def collect(self, timeout_s: float | None = None) -> StepResult | None:
            if self.num_steps == 3:
                raise EngineDeadError("the worker was killed by SIGKILL")
            return super().collect(timeout_s)

    executor = Dying(STATES, Faults(random.Random(0)), 0, False, False)
    bench = Bench(config, [(1, Add(request("a", max_tokens=50)))], executor)
    bench.core.start()
    with pytest.raises(EngineDeadError, match="SIGKILL"):
        bench.core.run()


def test_a_result_of_another_step_is_not_believed(config: Config) -> None:
    class Confused(EchoExecutor):
        def submit(self, plan: StepPlan) -> None:
            super().submit(plan)
            if plan.step == 2:
                self.steps[-1].step = 9

    executor = Confused(STATES, Faults(random.Random(0)), 0, False, False)
    bench = Bench(config, [(1, Add(request("a")))], executor)
    bench.core.start()
    with pytest.raises(EngineDeadError, match="answered step 9"):
        bench.core.run()


# memory


class Sized(EchoExecutor):
    """A worker with so many bytes for its cache."""

    def __init__(self, budget: int, block_multiple: int = 1) -> None:
        super().__init__(STATES, Faults(random.Random(0)), 0, False, False)
        self._budget = budget
        self._multiple = block_multiple

    def start(self, config: Config) -> WorkerFacts:
        facts = super().start(config)
        facts.cache_budget_bytes, facts.block_multiple = self._budget, self._multiple
        return facts


def start(budget: int, **values: Any) -> EngineCore:
    core = Bench(make_config(**values), [], Sized(budget)).core
    core.start()
    return core


def test_no_memory_for_the_cache_says_raise() -> None:
    with pytest.raises(MemoryPlanError, match="no memory is left for the cache") as caught:
        start(-100)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("raise --gpu-memory-utilization to at least 0.04")


def test_max_model_len_that_does_not_fit_names_the_longest() -> None:
    message = r"max_model_len 64 needs .* GiB .* are available; the estimated maximum model length is 36"
    with pytest.raises(MemoryPlanError, match=message) as caught:
        start(10 * 8)  # blocks of 4 tokens and 2 bytes each; one is the null block
    assert "raise --gpu-memory-utilization to at least 0.04" in (caught.value.hint or "")  # 3 MiB, slack of 32 MiB, of 1 GiB
    assert "lower --max-model-len to 36" in (caught.value.hint or "")
    with pytest.raises(MemoryPlanError, match="raise --kv-cache-memory-bytes to at least 136,"):
        start(0, memory_bytes=10 * 8)
    assert start(0, memory_bytes=136).config.model.max_model_len == 64
    with pytest.raises(MemoryPlanError, match="raise --num-gpu-blocks-override to at least 17,"):
        start(0, num_blocks_override=16)
    assert start(0, num_blocks_override=17).config.model.max_model_len == 64
    core = start(10 * 8, max_model_len=36)
    assert core.scheduler.cache.pool.num_blocks == 10


def test_auto_is_lowered_to_what_fits(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "octavo"):
        core = start(10 * 8, is_max_model_len_auto=True)
        assert core.config.model.max_model_len == 36
        assert start(1 << 16, is_max_model_len_auto=True).config.model.max_model_len == 64
        assert start(1 << 16, is_max_model_len_auto=True, max_model_len=0).config.model.max_model_len == 256
    assert "Auto-fit max_model_len: reduced from 64 to 36 to fit in available KV cache memory" in caplog.text
    assert "Auto-fit max_model_len: full model context length 64 fits" in caplog.text
    with pytest.raises(MemoryPlanError):
        start(4, is_max_model_len_auto=True)


def test_log_lines_that_operators_know(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "octavo"):
        start(8 * 100_001)
    assert "Available KV cache memory: 0.00 GiB" in caplog.text
    assert "CPU KV cache size: 400,000 tokens, Maximum concurrency for 64 tokens per request: 6250.00x" in caplog.text
    assert f"--kv-cache-memory-bytes={8 * 100_001}" in caplog.text
    for part in ("runtime", "weights", "arena", "cache"):
        assert f"Memory: {part} " in caplog.text


def test_the_configuration_is_logged_with_its_reasons(caplog: pytest.LogCaptureFixture) -> None:
    config = make_config(reasons=["max_num_seqs = 4: because"], max_num_seqs=4)
    with caplog.at_level(logging.INFO, "octavo"):
        Bench(config, [], Sized(1 << 16)).core.start()
    assert "SchedulerConfig: max_num_seqs=4, " in caplog.text
    assert "max_num_seqs = 4: because" in caplog.text


def test_typed_sizes_win_over_the_budget() -> None:
    assert start(-1, memory_bytes=8 * 50).scheduler.cache.pool.num_blocks == 50
    assert start(-1, memory_bytes=8 * 50, num_blocks_override=60).scheduler.cache.pool.num_blocks == 60


def test_block_size_that_the_back_end_cannot_use() -> None:
    with pytest.raises(ConfigError, match="not a multiple of 3"):
        Bench(make_config(), [], Sized(1 << 16, block_multiple=3)).core.start()
