"""A request in the engine core: its tokens, how far it is planned, and how far it is confirmed."""

from array import array

from octavo.kvcache.tables import Hit, Tables
from octavo.protocol.messages import EngineRequest, RequestEvent
from octavo.protocol.sampling_params import SamplingParams
from octavo.scheduler.stopping import StopRules

WAITING = -1  # the row of a request that has none


class Start:
    """Where a request would go on: so many tokens are computed, because it computed them or because a prefix was found."""

    __slots__ = ("hit", "position")

    def __init__(self, position: int, hit: Hit | None = None) -> None:
        self.position = position
        self.hit = hit


class Request:
    """Counts are of tokens, from the start of the prompt.

    known: tokens whose value is known here; they are in `tokens`.
    pending: tokens that outstanding steps will add if every draft is accepted.
    planned: tokens computed when all outstanding steps have run, drafts included. Decides grants.
    confirmed: tokens computed according to results. Decides what a window lets go.
    limit: it ends with so many tokens at the latest.
    overtaken: how many who came later began while this one waited for room.
    sampled_step: the newest step planned that samples for this row; -1 = none since the row began.
    """

    __slots__ = (
        "confirmed",
        "counted",
        "epoch",
        "events",
        "failed_at",
        "has_told_cached",
        "id",
        "is_ended",
        "known",
        "limit",
        "message",
        "num_cached",
        "num_prompt",
        "order",
        "outstanding",
        "overtaken",
        "pending",
        "planned",
        "prompt_logprobs_told",
        "proposals",
        "row",
        "sampled_step",
        "sampling",
        "start",
        "stop",
        "tables",
        "tokens",
    )

    def __init__(self, message: EngineRequest, sampling: SamplingParams, order: tuple[int, float, int], max_model_len: int) -> None:
        self.id = message.request_id
        self.message = message
        self.sampling = sampling
        self.order = order
        self.tokens = array("i", message.token_ids)
        self.num_prompt = self.known = len(self.tokens)
        output = max_model_len if sampling.max_tokens is None else sampling.max_tokens
        self.limit = min(max_model_len, self.num_prompt + output)
        self.stop = StopRules(message, sampling, self.num_prompt, self.limit)
        self.events: list[RequestEvent] = []
        self.num_cached: int | None = None  # prompt tokens found in the cache at the first start; None until then
        self.has_told_cached = False
        self.counted = 0  # prompt tokens that the statistics have, computed or cached; they are counted once, whatever is done again
        self.prompt_logprobs_told = 1  # positions before this are done; position 0 has none
        self.overtaken = 0
        self.failed_at = -1  # known tokens when a step failed under it
        self.is_ended = False
        self.start = Start(0)
        self.tables: Tables
        self.reset()

    def reset(self) -> None:
        """As it was before it first ran, except for the tokens it has gained."""
        self.row = WAITING
        self.epoch = -1  # no result is for it
        self.planned = self.confirmed = self.pending = self.outstanding = 0
        self.sampled_step = -1
        self.proposals: list[int] = []

    @property
    def has_run(self) -> bool:
        return self.num_cached is not None

    @property
    def only_reads(self) -> bool:
        """It asks for nothing but its prompt's log-probabilities: the prompt is computed, and nothing sampled."""
        return self.limit == self.num_prompt

    @property
    def most_computed(self) -> int:
        """Tokens that are computed at the most: the last one sampled is not."""
        return max(self.num_prompt, self.limit - 1)

    @property
    def reads_prefix_cache(self) -> bool:
        """A hit skips the computation that prompt log-probabilities come from."""
        if self.sampling.skip_reading_prefix_cache:
            return False
        return self.sampling.prompt_logprobs is None or self.prompt_logprobs_told >= self.num_prompt

    def count_prompt(self, position: int) -> int:
        """The prompt is done up to `position`: how many of its tokens that is for the first time."""
        new = min(position, self.num_prompt) - self.counted
        if new <= 0:
            return 0
        self.counted += new
        return new

    def is_prefilling(self, position: int) -> bool:
        """Whether a span that starts at `position` computes tokens that were known before."""
        return position < self.num_prompt or position < self.known - 1
