"""Every stated figure is what its line says it is, and every stated minimum of a recipe is near the computed one or has its reason."""

import pytest

from docs import figures
from octavo.cli import plan as command
from octavo.planning import families, recipes

FIGURES = figures.figures()


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.says[:50])
def test_each_figure_is_what_its_line_says(figure: figures.Figure) -> None:
    assert figure.agrees
    assert figures.follows_rule(figure)
    assert figure.waits is None or figure.waits in families.table()
    if figure.verdict == "reproduced":
        assert figure.plan is not None
        assert figure.found is None
    elif figure.verdict == "waiting":
        assert figure.waits is not None
        assert figure.plan is None
    else:
        assert figure.why, "a refutation needs its reason, and so does what cannot be computed"
        if figure.found is not None and figure.value is not None:
            assert abs(figure.found - figure.value) > 0.02 * figure.value


def test_the_three_documents_are_there() -> None:
    assert {figure.document for figure in FIGURES} == {"handbook", "note", "tutorial"}
    assert len({(figure.document, figure.says) for figure in FIGURES}) == len(FIGURES)
    assert len(FIGURES) == 138


JUDGED = [recipes.judge(recipe, variant) for recipe in recipes.every() for variant in recipe.variants]


def test_stated_minimums_are_near_or_explained() -> None:
    known = [each for each in JUDGED if each.ratio is not None]
    assert (len(recipes.every()), len(JUDGED), len(known)) == (177, 356, 28)
    off = {each.variant.checkpoint: each.rule for each in known if abs((each.ratio or 0) - 1) > recipes.NEAR}
    assert all(off.values()), off
    assert set(off.values()) == {"whole GB", "half a byte", "a floor"}
    assert len(off) == 9
    assert all(not each.rule for each in known if each.variant.checkpoint not in off)
    # the rule's own bias: none where weights are plain, below where some of them stay in 16 bits
    of = {precision: [each.ratio or 0 for each in known if each.variant.precision == precision] for precision in ("bf16", "fp8")}
    assert 0.97 < sorted(of["bf16"])[len(of["bf16"]) // 2] < 1.05
    assert all(0.9 < ratio < 1 for ratio in of["fp8"])


def test_what_is_not_built_is_told_by_its_name() -> None:
    waiting = {each.variant.checkpoint: each.waits for each in JUDGED if each.ratio is None}
    assert waiting["nvidia/Qwen3.5-397B-A17B-NVFP4"] == "Qwen3.5 (gated delta networks)"
    assert all(waiting.values())


@pytest.mark.parametrize("name", recipes.RULES)
def test_each_rule_tells_a_number_that_it_explains(name: str) -> None:
    """By the smallest example of it."""
    examples = {
        "whole GB": ("bf16", 5, 4.2, 1.75e9),
        "half a byte": ("nvfp4", 42, 51.3, 70e9),
        "a byte": ("fp8", 84, 96.0, 70e9),
        "the name's number": ("bf16", 72, 55.0, 30e9),
        "a floor": ("bf16", 4, 1.4, 0.6e9),
    }
    precision, stated, computed, parameters = examples[name]
    variant = recipes.Variant(name="default", checkpoint="org/made", precision=precision, minimum_gb=stated)
    recipe = recipes.Recipe(model="org/made", parameters=parameters, version="1", variants=[variant])
    judged = recipes.Judged(variant=variant, parameters=int(parameters), weights_gb=computed / 1.2, computed_gb=computed)
    assert next(rule for rule, (applies, _) in recipes.RULES.items() if applies(recipe, judged)) == name


def test_recipes_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["nvidia/Llama-3.3-70B-Instruct-NVFP4", "--recipes"]) == 0
    said = capsys.readouterr().out
    assert "meta-llama/Llama-3.3-70B-Instruct: vLLM 0.12.0 or later" in said
    assert "42 GB stated, 51.3 GB computed" in said
    assert "-18%: the stated number counts half a byte" in said
    assert command.run(["Qwen/Qwen3.8-Flash-Next", "--recipes"]) == 0
    said = capsys.readouterr().out
    assert "image vllm/vllm-openai:qwen38-flash-next" in said
    assert "waits for Qwen3.8-Flash-Next" in said
    assert command.run(["org/nothing", "--recipes"]) == 0
    assert "no published recipe tells of org/nothing" in capsys.readouterr().out
