"""A ledger: how much each series of a server has grown since a moment, as /metrics tells it over HTTP."""

import select
import time

import httpx
from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
GAUGES = ("num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason", "kv_cache_usage_perc")


def read(url: str) -> Samples:
    """Every sample of /metrics, by name and labels."""
    text = httpx.get(f"{url}/metrics", timeout=20).text
    return {(s.name, frozenset(s.labels.items())): s.value for family in text_string_to_metric_families(text) for s in family.samples}


def total(samples: Samples, name: str, **labels: str) -> float:
    """The sum of a series over the labels that are not given. There must be one."""
    found = [value for (own, has), value in samples.items() if own == name and labels.items() <= has]
    assert found, f"no {name} with {labels}"
    return sum(found)


class Ledger:
    """Changes since it was made. `prefix` is that of the engine's names."""

    def __init__(self, url: str, prefix: str = "vllm:") -> None:
        self._url = url
        self._prefix = prefix
        self._before = read(url)
        self._now = self._before

    def settle(self, timeout_s: float = 20) -> "Ledger":
        """Read again when every sequence that was let in has ended and the gauges are at 0."""
        end = time.monotonic() + timeout_s
        while True:
            self._now = read(self._url)
            if not any(self.now(name) for name in GAUGES):
                return self
            assert time.monotonic() < end, {name: self.now(name) for name in GAUGES}
            select.select([], [], [], 0.01)

    def now(self, name: str, **labels: str) -> float:
        return total(self._now, self._prefix + name, **labels)

    def grown(self, name: str, **labels: str) -> float:
        """Of an engine's series."""
        full = self._prefix + name
        return total(self._now, full, **labels) - total(self._before, full, **labels)

    def served(self) -> dict[tuple[str, str, str], int]:
        """http_requests_total: method, handler, status -> how many more."""
        found = {}
        for key, value in self._now.items():
            if key[0] == "http_requests_total" and (more := value - self._before.get(key, 0.0)):
                labels = dict(key[1])
                found[labels["method"], labels["handler"], labels["status"]] = int(more)
        return found
