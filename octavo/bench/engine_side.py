"""Engine side: what the engine itself counted during a run, read from its metrics before and after."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from octavo.frontend.metrics import Metric

_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_POSITION = re.compile(r'position="(\d+)"')
_KNOWN_BY = "num_requests_running"  # a series that every engine of this kind has: what stands before it is the prefix of all
_COUNTERS = (
    "prompt_tokens",
    "generation_tokens",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "num_preemptions",
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
)
_STEPS = "iteration_tokens_total"  # a histogram: as many observations as steps


@dataclass(slots=True)
class Counters:
    """Counts so far, by name, summed over engines; accepted drafts by position."""

    values: dict[str, float] = field(default_factory=dict)
    accepted_at: dict[int, float] = field(default_factory=dict)

    def since(self, earlier: "Counters") -> "Counters":
        return Counters(
            {name: value - earlier.values.get(name, 0) for name, value in self.values.items()},
            {place: value - earlier.accepted_at.get(place, 0) for place, value in self.accepted_at.items()},
        )

    def get(self, name: str) -> float:
        return self.values.get(name, 0.0)


def from_text(text: str) -> Counters | None:
    """Counters of a /metrics page; None if no engine's series are there."""
    series = [(found[1], found[2] or "", found[3]) for line in text.splitlines() if (found := _LINE.match(line)) is not None]
    prefix = _prefix(name for name, _, _ in series)
    if prefix is None:
        return None
    wanted = {f"{prefix}{name}_total": name for name in _COUNTERS} | {f"{prefix}{_STEPS}_count": _STEPS}
    counters = Counters()
    for name, labels, value in series:
        if name in wanted:
            counters.values[wanted[name]] = counters.get(wanted[name]) + float(value)
        elif name == f"{prefix}spec_decode_num_accepted_tokens_per_pos_total" and (place := _POSITION.search(labels)):
            at = int(place[1])
            counters.accepted_at[at] = counters.accepted_at.get(at, 0) + float(value)
    return counters


def from_metrics(metrics: Sequence[Metric]) -> Counters:
    """Counters of LLM.get_metrics()."""
    prefix = _prefix([metric.name for metric in metrics]) or ""
    counters = Counters()
    for metric in metrics:
        name = metric.name.removeprefix(prefix)
        if name in (*_COUNTERS, _STEPS):
            counters.values[name] = counters.get(name) + float(metric.value if metric.value is not None else metric.count or 0)
    return counters


def _prefix(names: Iterable[str]) -> str | None:
    """What all names of the engine's series begin with; None if there are none."""
    return next((name.removesuffix(_KNOWN_BY) for name in names if name.endswith(_KNOWN_BY)), None)


def rows(done: Counters, seconds: float, weights_bytes: int = 0) -> list[tuple[str, int | float]]:
    """Name and figure of each line. weights_bytes: what one step reads of them."""
    steps, queries = done.get(_STEPS), done.get("prefix_cache_queries")
    tokens = done.get("prompt_tokens") + done.get("generation_tokens")
    found: list[tuple[str, int | float]] = [
        ("Prompt tokens computed (tok/s):", done.get("prompt_tokens") / seconds),
        ("Tokens generated (tok/s):", done.get("generation_tokens") / seconds),
        ("Prefix cache hit rate (%):", 100 * done.get("prefix_cache_hits") / queries if queries else 0.0),
        ("Preemptions:", int(done.get("num_preemptions"))),
    ]
    if steps:
        found += [("Steps:", int(steps)), ("Tokens per step:", tokens / steps)]
    if steps and weights_bytes:
        found.append(("Weights read (GB/s):", steps * weights_bytes / seconds / 1e9))
    return found


@dataclass(slots=True)
class Speculation:
    """How the drafts of a run fared."""

    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    per_position: list[float]

    @property
    def acceptance_rate(self) -> float:
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0

    @property
    def acceptance_length(self) -> float:
        """Tokens that one draft brought, the target's own among them."""
        return 1 + self.num_accepted_tokens / self.num_drafts

    @classmethod
    def of(cls, done: Counters) -> "Speculation | None":
        """None if nothing was drafted."""
        drafts = done.get("spec_decode_num_drafts")
        if drafts <= 0:
            return None
        per_position = [done.accepted_at[place] / drafts for place in sorted(done.accepted_at)]
        tokens, accepted = done.get("spec_decode_num_draft_tokens"), done.get("spec_decode_num_accepted_tokens")
        return cls(int(drafts), int(tokens), int(accepted), per_position)

    def result(self) -> dict[str, float | list[float]]:
        """Under the keys of vLLM's result files."""
        return {
            "spec_decode_acceptance_rate": 100 * self.acceptance_rate,
            "spec_decode_acceptance_length": self.acceptance_length,
            "spec_decode_num_drafts": self.num_drafts,
            "spec_decode_draft_tokens": self.num_draft_tokens,
            "spec_decode_accepted_tokens": self.num_accepted_tokens,
            "spec_decode_per_position_acceptance_rates": self.per_position,
        }
