"""Formats by name: what there is, what `auto` takes, what a file adds, and how a name that is none is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo import plugins
from octavo.errors import ConfigError
from octavo.parsing import catalog, vllm_names
from octavo.parsing.catalog import Kind, settle
from octavo.parsing.events import Arguments, Piece, ToolCall, ToolEnd, join
from octavo.parsing.machine import open_parser

WANTED: dict[Kind, str] = {
    "tools": "deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 deepseek_v41 qwen3_coder qwen3_xml qwen3_json hermes glm45 glm47 kimi_k2 "
    "kimi_k3 minimax_m2 minimax_m3 openai llama3_json llama4_json llama4_pythonic pythonic mistral gemma4 functiongemma ernie45 granite "
    "granite4 "
    "phi4_mini_json internlm jamba step3 seed_oss hunyuan_a13b olmo3 xlam lfm2",
    "reasoning": "deepseek_r1 deepseek_v3 deepseek_v4 deepseek_v41 qwen3 glm45 glm47 kimi_k2 kimi_k3 minimax_m2 minimax_m2_append_think "
    "minimax_m3 openai_gptoss mistral gemma4 ernie45 granite olmo3 seed_oss step3 hunyuan_a13b",
}
KINDS: tuple[Kind, ...] = ("tools", "reasoning")


@pytest.fixture
def added() -> Iterator[dict[str, dict[str, object]]]:
    """What files add in a test is gone after it."""
    before = {room: dict(modules) for room, modules in plugins._added.items()}
    yield plugins._added  # type: ignore[misc]
    plugins._added.clear()
    plugins._added.update(before)


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_there_with_its_origin(kind: Kind) -> None:
    assert set(WANTED[kind].split()) <= set(catalog.names(kind))
    for name in catalog.names(kind):
        origin = catalog.origin(kind, name)
        assert origin is not None, name
        assert origin.models, name
        assert origin.sources, name


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_vllm_are_ours_or_refused_by_name(kind: Kind) -> None:
    others = vllm_names.TOOLS if kind == "tools" else vllm_names.REASONING
    assert not set(others) & set(catalog.names(kind))
    for name, same in others.items():
        with pytest.raises(ConfigError, match="vLLM has") as refused:
            settle(kind, name)
        assert (same or "plugin") in str(refused.value.hint)
        assert not same or same in catalog.names(kind)


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [("tools", "hermess", "hermes"), ("tools", "qwen_coder", "qwen3_coder"), ("reasoning", "deepseek_r2", "deepseek_r1")],
)
def test_a_mistyped_name_is_told_the_nearest(kind: Kind, name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=name) as refused:
        settle(kind, name)
    assert f"did you mean {meant}" in str(refused.value.hint)


def test_names_are_taken_as_users_type_them() -> None:
    assert settle("tools", "Qwen3-Coder").name == "qwen3_coder"
    assert settle("reasoning", "deepseek_r1").name == "deepseek_r1"
    assert settle("tools", None).name is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_type_alone_shows_one_format_at_most(kind: Kind) -> None:
    types: dict[str, list[str]] = {}
    for name in catalog.names(kind):
        origin = catalog.origin(kind, name)
        for model_type in origin.model_types if origin else ():
            types.setdefault(model_type, []).append(name)
    assert {model_type: names for model_type, names in types.items() if len(names) > 1} == {}


def test_auto_without_any_evidence_says_so() -> None:
    choice = settle("tools", "auto", template="{{ messages }}", model_type="llama")
    assert choice.name is None
    assert "llama" in choice.reason


@pytest.mark.usefixtures("added")
def test_a_file_adds_a_format_under_its_own_name(tmp_path: Path) -> None:
    file = tmp_path / "in_house.py"
    file.write_text(
        '"""Calls as our own models write them."""\nfrom octavo.parsing.tools.hermes import FORMAT as HERMES\nFORMAT = HERMES\n'
    )
    with pytest.raises(ConfigError):
        settle("tools", "in_house")
    assert catalog.add_file("tools", str(file)) == "in_house"
    assert catalog.add_file("tools", str(file)) == "in_house"
    assert settle("tools", "in-house").name == "in_house"
    parser = open_parser(tool_format="in_house")
    events = parser.feed([Piece('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>')]) + parser.finish()
    assert join(events) == [ToolCall(0, "f"), Arguments(0, "{}"), ToolEnd(0)]
    with pytest.raises(ConfigError):
        settle("reasoning", "in_house")


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize(
    ("name", "text", "fact"),
    [
        ("hermes.py", "FORMAT = None", "hide"),
        ("broken.py", "import nothing_of_that_name", "ModuleNotFoundError"),
        ("empty.py", "", "no FORMAT"),
        ("not a name.py", "FORMAT = 1", "no Python file"),
    ],
)
def test_a_file_that_cannot_be_a_format_is_refused(tmp_path: Path, name: str, text: str, fact: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    before = catalog.names("tools")
    with pytest.raises(ConfigError, match=fact):
        catalog.add_file("tools", str(file))
    assert catalog.names("tools") == before


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no Python file"):
        catalog.add_file("reasoning", str(tmp_path / "absent.py"))


def test_a_type_alone_opens_no_thought_unless_all_its_models_think() -> None:
    by_type = {
        name
        for name in catalog.names("reasoning")
        if (origin := catalog.origin("reasoning", name))
        and origin.model_types
        and getattr(catalog.table("reasoning", name), "starts_open", False)
    }
    assert by_type == {"minimax_m2", "step3"}
    assert settle("reasoning", "auto", template="{{ messages }}", model_type="ernie4_5_moe").name is None


@pytest.mark.parametrize(
    ("model_type", "tools", "reasoning"),
    [
        ("deepseek_v32", "deepseek_v32", "deepseek_v3"),
        ("deepseek_v41", "deepseek_v41", "deepseek_v41"),
        ("kimi_k3", "kimi_k3", "kimi_k3"),
        ("gpt_oss", "openai", "openai_gptoss"),
        ("mistral3", "mistral", None),
        ("llama", None, None),
    ],
)
def test_models_without_a_template_are_known_by_their_type(model_type: str, tools: str | None, reasoning: str | None) -> None:
    assert settle("tools", "auto", model_type=model_type).name == tools
    assert settle("reasoning", "auto", model_type=model_type).name == reasoning
