"""Process metrics: python_* and process_*, of the server's own process."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric


class ProcessMetrics:
    """prometheus_client's own series, in a registry that holds nothing else."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        for collector in (GCCollector, PlatformCollector, ProcessCollector):
            collector(registry=self._registry)

    def collect(self) -> Iterator[Metric]:
        yield from self._registry.collect()
