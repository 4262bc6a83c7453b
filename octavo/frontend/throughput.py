"""Throughput: what the engine did since the last look, as the line that operators know."""

import time

from octavo.protocol.messages import EngineStats


class Throughput:
    """Adds up EngineStats between two lines of the log."""

    def __init__(self, engine: int = 0) -> None:
        self._engine = engine
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

    def end(self) -> None:
        """The engine has died: nothing runs or waits."""
        self._last = EngineStats()

    def line(self, device: str, num_deferred: int = 0) -> tuple[str, bool]:
        """The line, and whether anything happened; starts a new interval. num_deferred: sequences that wait in the front end."""
        now = time.monotonic()
        seconds = max(now - self._since, 1e-9)
        total, last = self._total, self._last
        words = [
            f"Engine {self._engine:03d}: Avg prompt throughput: {total.prompt_tokens / seconds:.1f} tokens/s",
            f"Avg generation throughput: {total.generation_tokens / seconds:.1f} tokens/s",
            f"Running: {last.num_running} reqs",
            f"Waiting: {last.num_waiting} reqs",
        ]
        if num_deferred:
            words.append(f"Deferred: {num_deferred} reqs")
        if total.num_preemptions:
            words.append(f"Preemptions: {total.num_preemptions}")
        words.append(f"{device.upper()} KV cache usage: {100 * last.kv_cache_usage:.1f}%")
        words.append(f"Prefix cache hit rate: {100 * total.prefix_hits / max(total.prefix_queries, 1):.1f}%")
        is_busy = bool(total.prompt_tokens or total.generation_tokens or last.num_running or last.num_waiting)
        self._since, self._total = now, EngineStats()
        return ", ".join(words), is_busy
