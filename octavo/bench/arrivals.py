"""Arrivals: when each request of a run is sent, drawn before the run begins."""

from collections.abc import Sequence

import numpy as np

from octavo.bench.options import ServeOptions
from octavo.bench.sample import Sample
from octavo.errors import ConfigError


def times(options: ServeOptions, samples: Sequence[Sample]) -> list[float]:
    """Seconds from the start, never falling; the samples' own where the run is self-timed."""
    check(options)
    is_self_timed = options.dataset_name == "timed_trace" if options.self_timed is None else options.self_timed
    if not is_self_timed:
        return drawn(options, len(samples))
    own = [sample.at_s for sample in samples if sample.at_s is not None]
    if len(own) < len(samples):
        raise ConfigError("--self-timed needs a dataset that says when its requests were sent", "use --dataset-name timed_trace")
    return sorted(own)


def drawn(options: ServeOptions, count: int) -> list[float]:
    """Gamma-distributed intervals. At a steady rate they are stretched a little, so that the last request is sent at count / rate."""
    rates = np.array([rate_at(options, i, count) for i in range(count)])
    if np.isinf(rates).all():
        return [0.0] * count
    if np.isinf(options.burstiness):
        intervals = 1 / rates
    else:
        random = np.random.default_rng([options.seed, 1])  # apart from what draws the prompts
        intervals = random.gamma(options.burstiness, 1 / (rates * options.burstiness))
    at = np.cumsum(intervals)
    if options.ramp_up_strategy is None and at[-1] > 0:
        at *= count / options.request_rate / at[-1]
    return [float(t) for t in at]


def rate_at(options: ServeOptions, number: int, count: int) -> float:
    """Requests a second when request `number` of `count` is drawn."""
    if options.ramp_up_strategy is None:
        return options.request_rate
    start, end = float(options.ramp_up_start_rps or 0), float(options.ramp_up_end_rps or 0)
    share = number / max(count - 1, 1)
    rate = start + (end - start) * share if options.ramp_up_strategy == "linear" else start * (end / start) ** share
    return max(rate, 1e-3)


def changes(options: ServeOptions, at: Sequence[float]) -> list[tuple[int, float]]:
    """(whole requests a second, seconds) of each moment at which a ramp passes another whole number."""
    found: list[tuple[int, float]] = []
    for number, second in enumerate(at):
        rate = int(rate_at(options, number, len(at)))
        if not found or rate > found[-1][0]:
            found.append((rate, second))
    return found


def check(options: ServeOptions) -> None:
    """Raise ConfigError for rates that cannot be."""
    if not options.request_rate > 0:
        raise ConfigError(f"--request-rate {options.request_rate} is not above 0", "inf sends everything at once")
    if not options.burstiness > 0:
        raise ConfigError(f"--burstiness {options.burstiness} is not above 0", "1 is a Poisson process")
    start, end = options.ramp_up_start_rps, options.ramp_up_end_rps
    if options.ramp_up_strategy is None:
        if start is not None or end is not None:
            raise ConfigError("--ramp-up-start-rps and --ramp-up-end-rps need --ramp-up-strategy", "linear or exponential")
        return
    if options.request_rate != float("inf"):
        raise ConfigError("--ramp-up-strategy decides the rate, and so does --request-rate", "leave one of them away")
    if start is None or end is None or start < 0 or end <= 0 or start > end:
        raise ConfigError("a ramp needs --ramp-up-start-rps and --ramp-up-end-rps, the first not above the second")
    if options.ramp_up_strategy == "exponential" and start == 0:
        raise ConfigError("an exponential ramp cannot start at 0", "raise --ramp-up-start-rps")
