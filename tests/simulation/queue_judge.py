"""The queue's judge: who began, who was overtaken and who was preempted for whom, beside the scheduler and by arithmetic of its own."""

from collections import Counter
from collections.abc import Sequence

from octavo.config.config import Config
from octavo.protocol.step import StepPlan
from octavo.scheduler.assembly import Step
from octavo.scheduler.request import Request
from octavo.scheduler.scheduler import MOST_ASIDE, Scheduler
from tests.simulation.echo_worker import ints


class WrongAnswerError(AssertionError):
    """A request, or the engine at its end, is not as it should be."""


def order_of(request: Request, config: Config) -> tuple[int, float]:
    return (request.message.priority if config.scheduler.policy == "priority" else 0, request.message.arrival_s)


class QueueJudge:
    """Watches every admission of one scheduler, and judges every plan.

    What it says of blocks is on the safe side: a request that fits by its count fits by any.
    """

    def __init__(self, scheduler: Scheduler, config: Config) -> None:
        self.overtaken = Counter[str]()
        self.num_preempted = 0
        self._scheduler = scheduler
        self._config = config
        self._admit = scheduler._admit
        scheduler._admit = self._watch  # type: ignore[method-assign]

    # one admission

    def _watch(self, step: Step, lower: Sequence[Request]) -> bool:
        """An admission that preempts succeeds, and preempts the last and no more than it must."""
        first, before = self._scheduler.waiting.first(), list(lower)
        held = {request.epoch: self._held([request]) for request in before}
        epochs = [request.epoch for request in before]
        goes_on = self._admit(step, lower)
        assert first is not None
        gone = [epoch for epoch, request in zip(epochs, before) if request.epoch != epoch]
        if not gone:
            return goes_on
        self.num_preempted += len(gone)
        if first.row < 0:
            raise WrongAnswerError(f"{len(gone)} requests were preempted for {first.id}, and it did not begin")
        if gone != epochs[-len(gone) :]:
            raise WrongAnswerError("others were preempted than the last")
        lacking = self._columns(first) - first.tables.columns
        spare = self._scheduler.cache.pool.num_free - self._watermark - lacking * len(self._scheduler.cache.growing)
        is_counted_exactly = self._config.scheduler.chunked_prefill  # a prompt in one piece reserves all that its windows would let go
        if len(gone) > 1 and is_counted_exactly and spare >= len(held[gone[0]]):
            raise WrongAnswerError(f"{len(gone)} requests were preempted for {first.id}, and fewer would have done")
        return goes_on

    # one plan

    def judge(self, plan: StepPlan, step: Step, begun: set[str], has_preempted: bool) -> None:
        queued = [entry[1] for entry in self._scheduler.waiting._heap if not entry[1].is_ended]
        waiting = sorted((request for request in queued if request.compiling is None), key=self._order)  # others may be passed
        self._judge_overtaking([request for request in step.requests if request.id in begun], waiting)
        if self._config.scheduler.prefill_schedule_interval == 1 and waiting:
            restored = sum(len(ints(change.restore_blocks)) for change in plan.groups)
            self._judge_inversion(step, waiting[0], restored)
            if not has_preempted:
                self._judge_standstill(step, waiting, restored)

    def _judge_overtaking(self, begun: list[Request], waiting: list[Request]) -> None:
        for new in begun:
            for request in waiting:
                if self._order(request) < self._order(new):
                    self.overtaken[request.id] += 1
                    if request.num_cached is not None or self.overtaken[request.id] > self._scheduler.most_overtaken:
                        raise WrongAnswerError(f"{request.id} was overtaken by {new.id}")

    def _judge_inversion(self, step: Step, first: Request, restored: int) -> None:
        """Nobody of lower priority runs while the first one waits that would fit if they did not."""
        priority = self._order(first)[0]
        above = [request for request in self._scheduler.running if self._order(request)[0] <= priority]
        if len(above) == len(self._scheduler.running) or len(above) == self._config.scheduler.max_num_seqs:
            return
        spent = sum(count for request, count in zip(step.requests, step.counts) if self._order(request)[0] <= priority)
        pool = self._scheduler.cache.pool
        room = pool.num_blocks - 1 - len(self._held(above)) - restored
        if self._has_tokens(first, spent) and self._needed(first) <= room - self._watermark:
            raise WrongAnswerError(f"{first.id} waits for requests of lower priority")

    def _judge_standstill(self, step: Step, waiting: list[Request], restored: int) -> None:
        """Nobody waits who could begin, but for those who may not overtake any more."""
        if len(self._scheduler.running) == self._config.scheduler.max_num_seqs:
            return
        spent, room = sum(step.counts), self._scheduler.cache.pool.num_free - restored - self._watermark
        for request in waiting[: MOST_ASIDE + 1]:
            if not self._has_tokens(request, spent):
                return
            if self._needed(request) <= room:
                raise WrongAnswerError(f"{request.id} could begin, and waits")
            if request.num_cached is not None or self.overtaken[request.id] >= self._scheduler.most_overtaken:
                return

    # counting

    @property
    def _watermark(self) -> int:
        return int(self._config.scheduler.watermark * self._scheduler.cache.pool.num_blocks)

    def _order(self, request: Request) -> tuple[int, float]:
        return order_of(request, self._config)

    def _has_tokens(self, request: Request, spent: int) -> bool:
        left = self._config.scheduler.max_num_batched_tokens - spent
        return left >= (1 if self._config.scheduler.chunked_prefill else request.known)

    def _columns(self, request: Request) -> int:
        return -(-request.known // self._scheduler.cache.block_size)

    def _needed(self, request: Request) -> int:
        """Blocks for all its tokens, without any that it could share, and for states to begin from."""
        cache = self._scheduler.cache
        return len(cache.fixed) * 2 + len(cache.growing) * self._columns(request)

    def _held(self, requests: list[Request]) -> set[int]:
        blocks = {block for request in requests for table in request.tables.blocks for block in table if block}
        return blocks | {block for request in requests for _, _, block in request.tables.snapshots}
