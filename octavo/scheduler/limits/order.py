"""The limits of a scheduler, in the order in which they are asked. What is granted does not depend on it; the cheap ones come first."""

from collections.abc import Callable

from octavo.config.config import SchedulerConfig
from octavo.kvcache.cache import Cache
from octavo.scheduler.limits.cache_blocks import CacheBlocks
from octavo.scheduler.limits.limit import Limit
from octavo.scheduler.limits.long_prefill import LongPrefill
from octavo.scheduler.limits.prefill_interval import PrefillInterval
from octavo.scheduler.limits.rows import Rows
from octavo.scheduler.limits.state_border import StateBorder
from octavo.scheduler.limits.token_budget import TokenBudget
from octavo.scheduler.limits.whole_prompt import WholePrompt


def make_limits(config: SchedulerConfig, cache: Cache, num_requests: Callable[[], int]) -> list[Limit]:
    """Those that the configuration asks for. num_requests: how many requests there are, running or waiting."""
    chunked, threshold, interval = config.chunked_prefill, config.long_prefill_token_threshold, config.prefill_schedule_interval
    fair_share_of = config.max_num_batched_tokens if config.long_prefill_token_threshold_adaptive else 0
    rows: list[tuple[bool, Callable[[], Limit]]] = [
        (True, lambda: Rows(config.max_num_active_seqs)),
        (True, lambda: TokenBudget(config.max_num_scheduled_tokens)),
        (interval > 1, lambda: PrefillInterval(interval)),
        (chunked and threshold > 0, lambda: LongPrefill(threshold, num_requests, fair_share_of)),
        (not chunked, lambda: WholePrompt()),
        (chunked and cache.saves_snapshots, lambda: StateBorder(cache.block_size)),
        (True, lambda: CacheBlocks(cache, config.reserve_full_prompt, config.watermark, chunked)),
    ]
    return [make() for is_wanted, make in rows if is_wanted]
