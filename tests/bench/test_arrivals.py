"""Arrival times: their distribution, their seed, their ramps."""

import dataclasses

import numpy as np
import pytest

from octavo.bench import arrivals
from octavo.bench.options import ServeOptions
from octavo.bench.sample import Sample
from octavo.errors import ConfigError

COUNT = 20_000


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_intervals_are_gamma_distributed(burstiness: float) -> None:
    at = np.array(arrivals.drawn(ServeOptions(request_rate=50.0, burstiness=burstiness, seed=3), COUNT))
    gaps = np.diff(at, prepend=0.0)
    assert (gaps >= 0).all()
    assert at[-1] == pytest.approx(COUNT / 50.0)  # exactly the rate
    variation = gaps.std() / gaps.mean()  # of a gamma distribution: 1 / sqrt(shape)
    assert variation == pytest.approx(burstiness**-0.5, rel=0.05)
    if burstiness == 1.0:  # exponential: a share of exp(-1) is longer than the mean
        assert (gaps > gaps.mean()).mean() == pytest.approx(np.exp(-1), abs=0.01)


def test_the_seed_decides() -> None:
    one = arrivals.drawn(ServeOptions(request_rate=5.0, seed=1), 50)
    assert one == arrivals.drawn(ServeOptions(request_rate=5.0, seed=1), 50)
    assert one != arrivals.drawn(ServeOptions(request_rate=5.0, seed=2), 50)


def test_without_a_rate_all_are_due_at_once() -> None:
    assert arrivals.drawn(ServeOptions(), 3) == [0.0, 0.0, 0.0]


def test_no_burstiness_is_a_steady_beat() -> None:
    assert arrivals.drawn(ServeOptions(request_rate=4.0, burstiness=float("inf")), 3) == [0.25, 0.5, 0.75]


@pytest.mark.parametrize(
    ("strategy", "middle"),
    [("linear", 6.0), ("exponential", 20**0.5)],
)
def test_ramps(strategy: str, middle: float) -> None:
    options = ServeOptions(ramp_up_strategy=strategy, ramp_up_start_rps=2.0, ramp_up_end_rps=10.0, burstiness=float("inf"))
    assert arrivals.rate_at(options, 0, 101) == pytest.approx(2.0)
    assert arrivals.rate_at(options, 50, 101) == pytest.approx(middle)
    assert arrivals.rate_at(options, 100, 101) == pytest.approx(10.0)
    at = arrivals.drawn(options, 101)
    gaps = np.diff(at)
    assert (np.diff(gaps) < 0).all()
    assert [rate for rate, _ in arrivals.changes(options, at)] == list(range(2, 11))


def test_traces_keep_their_times() -> None:
    samples = [Sample("a", 1, 1, 0.0), Sample("b", 1, 1, 0.5), Sample("c", 1, 1, 2.0)]
    traced = ServeOptions(dataset_name="timed_trace")
    assert arrivals.times(traced, samples) == [0.0, 0.5, 2.0]
    assert arrivals.times(dataclasses.replace(traced, self_timed=False), samples) == [0.0, 0.0, 0.0]
    assert arrivals.times(ServeOptions(self_timed=True), samples) == [0.0, 0.5, 2.0]
    with pytest.raises(ConfigError, match="self-timed"):
        arrivals.times(ServeOptions(self_timed=True), [Sample("a", 1, 1)])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"request_rate": 0.0}, "request-rate"),
        ({"request_rate": -1.0}, "request-rate"),
        ({"burstiness": 0.0}, "burstiness"),
        ({"ramp_up_start_rps": 1.0}, "ramp-up-strategy"),
        ({"ramp_up_strategy": "linear"}, "ramp-up-start-rps"),
        ({"ramp_up_strategy": "linear", "ramp_up_start_rps": 5.0, "ramp_up_end_rps": 1.0}, "ramp-up-start-rps"),
        ({"ramp_up_strategy": "exponential", "ramp_up_start_rps": 0.0, "ramp_up_end_rps": 1.0}, "exponential"),
        ({"ramp_up_strategy": "linear", "request_rate": 2.0, "ramp_up_start_rps": 1.0, "ramp_up_end_rps": 2.0}, "request-rate"),
    ],
)
def test_rates_that_cannot_be(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        arrivals.check(ServeOptions(**changes))  # type: ignore[arg-type]
