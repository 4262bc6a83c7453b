"""The page of stated figures: what documents on serving say, and what the planning code computes for the same question."""

import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from octavo.cli import plan as command
from octavo.errors import OctavoError
from octavo.kvcache.plan import blocks_for, bytes_for, plan_cache
from octavo.planning import communication, families, hardware, recipes
from octavo.planning import plan as plans
from octavo.planning.plan import Plan
from octavo.planning.speed import Roofline, serve
from octavo.planning.topology import Topology
from octavo.planning.workload import Workload

GIB = 2**30


class Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of figures.toml, which says what the fields are."""

    document: Literal["handbook", "note", "tutorial"]
    says: str
    verdict: Literal["reproduced", "refuted", "waiting", "not computable"]
    plan: str | None = None
    quantity: str | None = None
    over: str | None = None
    value: float | None = None
    within: float = 0.0
    at_least: bool = False
    refused: str | None = None
    found: float | None = None
    waits: str | None = None
    rule: tuple[float, float] | None = None
    why: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the computed number is what the verdict says it is: the stated one, or the other one that was found."""
        if self.refused is not None:
            return self.refused in str(refusal(self.plan or ""))
        expected = self.value if self.found is None else self.found
        computed = self.computed
        if expected is None or computed is None:
            return computed is None and self.verdict in ("waiting", "not computable", "refuted") and bool(self.why or self.waits)
        return computed >= expected if self.at_least else abs(computed - expected) <= self.within * expected

    @property
    def computed(self) -> float | None:
        """None: nothing can be computed."""
        if self.plan is None or self.quantity is None:
            return None
        made = QUANTITIES[self.quantity](make(self.plan))
        if self.over is None:
            return made
        other = QUANTITIES[self.quantity](make(self.over))
        return other - made if self.quantity == "tokens_fewer" else made / other


def figures() -> list[Figure]:
    entries = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["figure"]
    return [msgspec.convert(entry, Figure) for entry in entries]


@cache
def make(words: str) -> Plan:
    """The plan that `octavo plan` makes for these words."""
    options, wanted, layout, notes = command.read(words.split())
    return plans.make(options, hardware.parse(wanted.hardware), Topology(**layout), notes=notes)


def refusal(words: str) -> OctavoError | None:
    try:
        make(words)
    except OctavoError as error:
        return error
    return None


def _weights_gb(plan: Plan) -> float:
    """Of the whole model, each part once for each rank that holds it."""
    return sum(rank.weights_bytes for rank in plan.ranks) * plan.topology.tensor / 1e9


def _request_bytes(plan: Plan) -> int:
    """Of one request of the length that is planned for, on all devices."""
    least = plan_cache(plan.ranks[0].states, plan.config.cache.block_size, 0, num_blocks_override=2)
    scheduler, length = plan.config.scheduler, plan.config.model.max_model_len
    one = bytes_for(least, length, scheduler.max_num_batched_tokens) - least.block_bytes
    return one * plan.kv_heads // plan.ranks[0].kv_heads


def _layers_of_a_block(plan: Plan) -> float:
    return plan.tightest.block_bytes / plan.config.cache.block_size / plan.ranks[0].states[0].spec.bytes_per_token


def _messages_a_layer(plan: Plan) -> float:
    stage = Roofline(plan).stages[0]
    return communication.of_a_step(stage, plan.topology, plan.hardware, 1, 1)[0].count / stage.layers


def _million_in_steps(plan: Plan) -> float:
    """Steps of decoding, at the batch that the cache holds, whose tokens take as long as a prompt of a million."""
    roofline = Roofline(plan)
    return roofline.prefill_s(1_000_000) / roofline.decode(1, 1024).seconds


def _used_of_blocks(plan: Plan) -> float:
    least = plan_cache(plan.ranks[0].states, plan.config.cache.block_size, 0, num_blocks_override=2)
    lengths = range(1, 2049)
    return sum(lengths) / sum(blocks_for(least, length, 1) * plan.config.cache.block_size for length in lengths)


QUANTITIES: dict[str, Callable[[Plan], float]] = {
    "cache_bytes_per_token": lambda plan: plan.bytes_per_token,
    "cache_kib_per_token": lambda plan: plan.bytes_per_token / 2**10,
    "cache_mib_per_token": lambda plan: plan.bytes_per_token / 2**20,
    "request_gb": lambda plan: _request_bytes(plan) / 1e9,
    "request_gib": lambda plan: _request_bytes(plan) / GIB,
    "layers_of_a_block": _layers_of_a_block,
    "cache_tokens": lambda plan: plan.cache_tokens,
    "tokens_fewer": lambda plan: plan.cache_tokens,
    "max_concurrency": lambda plan: plan.max_concurrency,
    "memory_gib": lambda plan: plan.tightest.total_bytes / GIB,
    "devices_gb": lambda plan: plan.tightest.total_bytes * plan.hardware.count / 1e9,
    "budget_gib": lambda plan: plan.tightest.budget_bytes / GIB,
    "budget_gb": lambda plan: plan.tightest.budget_bytes / 1e9,
    "weights_gib": lambda plan: plan.tightest.weights_bytes / GIB,
    "weights_gb": _weights_gb,
    "beside_gib": lambda plan: (plan.tightest.arena_bytes + plan.tightest.runtime_bytes + plan.tightest.graph_bytes) / GIB,
    "cache_gib": lambda plan: plan.tightest.cache_bytes / GIB,
    "cache_gb": lambda plan: plan.tightest.cache_bytes * plan.topology.tensor / 1e9,
    "fits": lambda plan: float(plan.fits),
    "cores": lambda plan: plan.topology.least_cores,
    "processes": lambda plan: plan.topology.processes,
    "expert_parallel_size": lambda plan: plan.topology.expert,
    "messages_a_layer": _messages_a_layer,
    "million_in_steps": _million_in_steps,
    "used_of_blocks": _used_of_blocks,
    "tokens_per_s_of_50": lambda plan: 50 / Roofline(plan).decode(50, 1024).seconds,
    "served_tokens_per_s": lambda plan: serve(Roofline(plan), Workload()).output_tokens_per_s,
}


def figures_page() -> str:
    every = figures()
    lines = [
        "# Figures that others state",
        "",
        "What three documents on serving (a handbook, a note and a tutorial) say, and what `octavo plan` computes. A figure is reproduced,",
        "refuted with the reason, waiting for an architecture that octavo does not build yet, or not computable. Speeds are those of the",
        "roofline, with the shares that are assumed of a card nobody measured.",
        "",
        ", ".join(f"{sum(each.verdict == verdict for each in every)} are {verdict}" for verdict in dict.fromkeys(e.verdict for e in every))
        + ".",
        "",
        "| document | says | verdict | computed | with |",
        "|---|---|---|---|---|",
    ]
    for figure in every:
        told = [figure.why] if figure.why else []
        if figure.waits is not None and figure.verdict == "waiting":
            told.insert(0, f"waits for {families.table()[figure.waits].told}")
        if figure.rule is not None:
            told.append(f"the recipes' rule: {figure.rule[0] / 1e9:,.6g} x {figure.rule[1]:g} x 1.2")
        if figure.plan is not None:
            told.insert(0, f"`octavo plan {figure.plan}`" + (f" against `{figure.over}`" if figure.over else ""))
        computed = "refused" if figure.refused is not None else "" if figure.computed is None else _number(figure.computed)
        lines.append(f"| {figure.document} | {figure.says} | {figure.verdict} | {computed} | {'; '.join(told)} |")
    lines += ["", "## Minimum memory of recipes", "", *_recipes()]
    return "\n".join(lines) + "\n"


def _recipes() -> list[str]:
    """Each variant whose architecture is built, and how the stated numbers lie about the computed ones."""
    judged = [recipes.judge(recipe, variant) for recipe in recipes.every() for variant in recipe.variants]
    known = [each for each in judged if each.ratio is not None]
    ratios = sorted(each.ratio or 0.0 for each in known)
    near = sum(abs(ratio - 1) <= recipes.NEAR for ratio in ratios)
    lines = [
        f"Of {len(judged)} variants in {len(recipes.every())} published recipes {len(known)} are of architectures that octavo builds.",
        f"Stated to computed (weights x {recipes.MARGIN:g}) is {ratios[0]:.2f} at least, {ratios[len(ratios) // 2]:.2f} in the middle and "
        f"{ratios[-1]:.2f} at most; {near} are within 10 %, and each other one has its reason.",
        "",
        "| checkpoint | precision | stated GB | computed GB | stated to computed | why |",
        "|---|---|---|---|---|---|",
    ]
    for each in known:
        why = f"{each.rule}: the number {recipes.RULES[each.rule][1]}" if each.rule else ""
        variant = each.variant
        numbers = f"{variant.minimum_gb:g} | {each.computed_gb:.1f} | {each.ratio:.2f}"
        lines.append(f"| {variant.checkpoint} | {variant.precision} | {numbers} | {why} |")
    return lines


def _number(value: float) -> str:
    """What the same code gives on any machine: four digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def follows_rule(figure: Figure) -> bool:
    """Whether the recipes' rule gives the stated number of GB."""
    return figure.rule is None or recipes.rule_gb(*figure.rule) == figure.value
