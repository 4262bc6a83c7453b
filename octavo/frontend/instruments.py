"""Instruments: counters, gauges and histograms whose recording costs a fraction of a microsecond, since each token is recorded.

They are written by one thread. `collect` gives them in prometheus_client's form, which other threads may then encode.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

from prometheus_client.core import Metric

Add = Callable[[str, float, dict[str, str]], None]  # suffix of the name, value, labels beside the series' own


class Gauge:
    """A value that goes up and down."""

    __slots__ = ("value",)
    kind = "gauge"

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = value

    def tell(self, add: Add) -> None:
        add("", self.value, {})


class Counter:
    """A sum that only grows."""

    __slots__ = ("_created", "value")
    kind = "counter"

    def __init__(self) -> None:
        self.value = 0.0
        self._created = time.time()

    def inc(self, amount: float = 1) -> None:
        self.value += amount

    def tell(self, add: Add) -> None:
        add("_total", self.value, {})
        add("_created", self._created, {})


class Summary:
    """How many, and their sum."""

    __slots__ = ("_created", "count", "sum")
    kind = "summary"

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self._created = time.time()

    def observe(self, value: float) -> None:
        self.count += 1
        self.sum += value

    def tell(self, add: Add) -> None:
        add("_count", self.count, {})
        add("_sum", self.sum, {})
        add("_created", self._created, {})


class Histogram:
    """How many values lie below each of some bounds, and their sum."""

    __slots__ = ("_bounds", "_counts", "_created", "_names", "sum")
    kind = "histogram"

    def __init__(self, bounds: Sequence[float]) -> None:
        """bounds: upper ones, which belong to what is below them, increasing."""
        self._bounds = list(bounds)
        self._names = [*(str(float(bound)) for bound in bounds), "+Inf"]
        self._counts = [0] * (len(self._bounds) + 1)  # of each bucket alone
        self.sum = 0.0
        self._created = time.time()

    @property
    def count(self) -> int:
        return sum(self._counts)

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    def tell(self, add: Add) -> None:
        total = 0
        for name, count in zip(self._names, self._counts, strict=True):
            total += count
            add("_bucket", total, {"le": name})
        add("_count", total, {})
        add("_sum", self.sum, {})
        add("_created", self._created, {})


Instrument = TypeVar("Instrument", bound=Gauge | Counter | Summary | Histogram)


class Family(Generic[Instrument]):
    """The instruments of one name, by the values of their labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str], make: Callable[[], Instrument]) -> None:
        self.name = name
        self._text = text
        self._labels = tuple(labels)
        self._make = make
        self._members: dict[tuple[str, ...], Instrument] = {}

    def of(self, *values: str) -> Instrument:
        """The instrument of these labels; it is told from now on."""
        found = self._members.get(values)
        if found is None:
            if len(values) != len(self._labels):
                raise ValueError(f"{self.name} has the labels {self._labels}, not {values}")
            found = self._members[values] = self._make()
        return found

    def collect(self) -> Iterator[Metric]:
        """The family as prometheus_client knows it; nothing where it has no members yet."""
        if not self._members:
            return
        metric = Metric(self.name, self._text, next(iter(self._members.values())).kind)
        for values, instrument in self._members.items():
            instrument.tell(partial(self._add, metric, dict(zip(self._labels, values))))
        yield metric

    def _add(self, metric: Metric, labels: dict[str, str], suffix: str, value: float, own: dict[str, str]) -> None:
        metric.add_sample(self.name + suffix, labels | own, value)
