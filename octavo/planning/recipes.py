"""Recipes: published variants of models with the memory that their recipe asks for, beside what the variant's own weights ask for.

recipes.json holds facts of the public recipes of vLLM (vllm-project/recipes, Apache-2.0): 177 of them, no text.
"""

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from octavo.config.options import Options
from octavo.layers.decoder import CausalLM
from octavo.loading.build import build_meta
from octavo.loading.finish import resident_bytes
from octavo.planning import families, plan, sources
from octavo.planning.hardware import Hardware, cards
from octavo.planning.ranks import describe

MARGIN = 1.2  # of the recipes, over the weights
NEAR = 0.1  # a share that needs no explanation
BYTES = {"bf16": 2.0, "fp8": 1.0, "int8": 1.0, "mxfp8": 1.0, "int4": 0.5, "nvfp4": 0.5, "mxfp4": 0.5, "fp4": 0.5}  # as the recipes count


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint. minimum_gb: of memory, as stated."""

    name: str
    checkpoint: str
    precision: str
    minimum_gb: float
    arguments: list[str] = []
    version: str | None = None
    hardware: list[str] = []  # the only ones that it is for


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """A model. parameters: as its name says; version: of vLLM, the least; verified: hardware that somebody ran it on."""

    model: str
    parameters: float | None = None
    version: str
    images: list[str] = []
    plugin: str | None = None
    arguments: list[str] = []
    verified: list[str] = []
    variants: list[Variant]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A variant with what is computed of it. computed_gb: weights times the recipes' margin; None: the architecture is not built.

    rule: why the stated minimum is more than NEAR off, or "" where it is not.
    """

    variant: Variant
    parameters: int | None = None
    weights_gb: float | None = None
    computed_gb: float | None = None
    waits: str | None = None
    rule: str = ""

    @property
    def ratio(self) -> float | None:
        """Stated to computed."""
        return None if self.computed_gb is None else self.variant.minimum_gb / self.computed_gb


@cache
def every() -> tuple[Recipe, ...]:
    return tuple(msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=list[Recipe]))


def of(model: str) -> list[Recipe]:
    """The recipes that tell of a checkpoint, by its name without its organization."""
    name = sources.key(model)
    return [r for r in every() if name == sources.key(r.model) or any(name == sources.key(v.checkpoint) for v in r.variants)]


def rule_gb(parameters: float, bytes_each: float) -> int:
    """What the recipes say a variant needs that has so many bytes of each parameter, in GB."""
    return math.ceil(round(parameters * bytes_each * MARGIN / 1e9, 6))


def judge(recipe: Recipe, variant: Variant) -> Judged:
    """The variant's weights from its configuration, where that is published with octavo."""
    if sources.key(variant.checkpoint) not in sources.known():
        family = families.of_name(variant.checkpoint) or families.of_name(recipe.model)
        waits = "an architecture that octavo does not build, or a configuration that it does not have" if family is None else family.told
        return Judged(variant=variant, waits=waits)
    config = plan.configure(Options(model=variant.checkpoint), Hardware(cards()["h200"], 1))
    model = build_meta(config).model
    weights = weights_bytes(model) / 1e9
    judged = Judged(variant=variant, parameters=describe(config).parameters, weights_gb=weights, computed_gb=weights * MARGIN)
    ratio = judged.ratio or 1.0
    if abs(ratio - 1) <= NEAR:
        return judged
    found = next((name for name, (applies, _) in RULES.items() if applies(recipe, judged)), "")
    return msgspec.structs.replace(judged, rule=found)


def weights_bytes(model: CausalLM) -> int:
    """Of what a checkpoint holds: without the tables of rotations, which are computed."""
    return resident_bytes(model) - resident_bytes(model.model.ropes)


def _is_rule(parameters: float | None, judged: Judged) -> bool:
    """Whether the stated number is the recipes' rule for so many parameters."""
    each = BYTES.get(judged.variant.precision)
    return parameters is not None and each is not None and rule_gb(parameters, each) == math.ceil(judged.variant.minimum_gb)


def _counts(recipe: Recipe, judged: Judged, bytes_each: float) -> bool:
    """Whether it is the rule for a format that is counted so, with the real number of parameters or the one in the name."""
    return BYTES.get(judged.variant.precision) == bytes_each and (
        _is_rule(recipe.parameters, judged) or _is_rule(judged.parameters, judged)
    )


Applies = Callable[[Recipe, Judged], bool]
# why a stated minimum is not the weights with the margin: what tells, and what it says; the first that fits
RULES: dict[str, tuple[Applies, str]] = {
    "whole GB": (
        lambda recipe, judged: 0 <= judged.variant.minimum_gb - (judged.computed_gb or 0.0) < 1,
        "is rounded up to whole GB, which is much of so small a model",
    ),
    "half a byte": (
        lambda recipe, judged: _counts(recipe, judged, 0.5),
        "counts half a byte for every parameter: scales, and the embedding and head, which stay in 16 bits, are left out",
    ),
    "a byte": (
        lambda recipe, judged: _counts(recipe, judged, 1.0),
        "counts a byte for every parameter: the embedding and head, which stay in 16 bits, are left out",
    ),
    "the name's number": (
        lambda recipe, judged: _is_rule(recipe.parameters, judged),
        "counts the parameters that the model's name tells, which are rounded",
    ),
    "a floor": (
        lambda recipe, judged: (judged.computed_gb or 0.0) < judged.variant.minimum_gb <= 4,
        "is a floor for runtime and cache, which take more than so small a model",
    ),
}


def page(model: str, recipes: list[Recipe]) -> str:
    """What `octavo plan --recipes` prints."""
    if not recipes:
        return f"no published recipe tells of {model}"
    lines = []
    for recipe in recipes:
        lines.append(f"{recipe.model}: vLLM {recipe.version} or later" + _asked(recipe))
        for judged in (judge(recipe, variant) for variant in recipe.variants):
            lines += _told(judged)
    return "\n".join(lines)


def _asked(recipe: Recipe) -> str:
    parts = [f"image {' or '.join(recipe.images)}"] if recipe.images else []
    parts += [f"plugin {recipe.plugin}"] if recipe.plugin else []
    parts += [f"with {' '.join(recipe.arguments)}"] if recipe.arguments else []
    parts += [f"seen to run on {', '.join(recipe.verified)}"] if recipe.verified else []
    return "".join(f"; {part}" for part in parts)


def _told(judged: Judged) -> list[str]:
    variant = judged.variant
    line = f"  {variant.name:<14} {variant.checkpoint} ({variant.precision}): {variant.minimum_gb:g} GB stated"
    if judged.computed_gb is None:
        line += f"; not computed, waits for {judged.waits}"
    else:
        line += f", {judged.computed_gb:.1f} GB computed ({judged.weights_gb:.1f} GB of weights x {MARGIN:g})"
    lines = [line]
    if judged.ratio is not None and abs(judged.ratio - 1) > NEAR:
        why = RULES[judged.rule][1] if judged.rule else "is set by hand, or for other files than these"
        lines.append(f"    {judged.ratio - 1:+.0%}: the stated number {why}")
    more = [f"vLLM {variant.version} or later"] if variant.version else []
    more += [f"on {', '.join(variant.hardware)} only"] if variant.hardware else []
    more += [f"with {' '.join(variant.arguments)}"] if variant.arguments else []
    if more:
        lines.append(f"    {'; '.join(more)}")
    return lines
