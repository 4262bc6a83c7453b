"""Throughput: what the engine did since the last look, as the line that operators know."""

import time

from octavo.protocol.messages import EngineStats


class Throughput:
    """Adds up EngineStats between two lines of the log."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._total = EngineStats()
        self._last = EngineStats()

    def add(self, stats: EngineStats) -> None:
        total = self._total
        total.prompt_tokens += stats.prompt_tokens
        total.generation_tokens += stats.generation_tokens
        total.num_preemptions += stats.num_preemptions
        total.prefix_queries += stats.prefix_queries
        total.prefix_hits += stats.prefix_hits
        self._last = stats

    def line(self, device: str) -> tuple[str, bool]:
        """The line, and whether anything happened; starts a new interval."""
        now = time.monotonic()
        seconds = max(now - self._since, 1e-9)
        total, last = self._total, self._last
        words = [
            f"Engine 000: Avg prompt throughput: {total.prompt_tokens / seconds:.1f} tokens/s",
            f"Avg generation throughput: {total.generation_tokens / seconds:.1f} tokens/s",
            f"Running: {last.num_running} reqs",
            f"Waiting: {last.num_waiting} reqs",
            f"{device.upper()} KV cache usage: {100 * last.kv_cache_usage:.1f}%",
            f"Prefix cache hit rate: {100 * total.prefix_hits / max(total.prefix_queries, 1):.1f}%",
        ]
        if total.num_preemptions:
            words.insert(4, f"Preemptions: {total.num_preemptions}")
        is_busy = bool(total.prompt_tokens or total.generation_tokens or last.num_running or last.num_waiting)
        self._since, self._total = now, EngineStats()
        return ", ".join(words), is_busy
