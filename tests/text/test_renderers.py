"""Code renderers write what the reference encoders write, token by token."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from octavo import plugins
from octavo.errors import ConfigError, RequestError
from octavo.text import code_renderer
from octavo.text.rendered import Controls, Rendered
from octavo.text.tokenizer import Tokenizer
from tests.text import tekken_files
from tests.text.byte_tokenizer import byte_tokenizer
from tests.text.conversations import CASES, CLOCK, WEATHER, call, said, told, user

RECORDED = Path(__file__).parent / "prompts"
HARMONY = Controls(["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>", "<|return|>", "<|constrain|>"])
# what the references refuse and octavo renders: roles in any order, an answer that nobody asked to be continued, arguments that are no JSON
LENIENT = {"a system message in the middle", "ends with an answer", "arguments that are no JSON"}


def recorded(name: str) -> dict[str, Any]:
    prompts: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))["prompts"]
    assert prompts.keys() == CASES.keys()
    return prompts


def rendered(name: str, case: str, controls: Controls | None = None) -> Rendered:
    return code_renderer.render(name, **{"add_generation_prompt": True, "controls": controls, **CASES[case]})


def parts(prompt: Rendered) -> list[list[Any]]:
    """Text and special tokens in turn, as [text, is special]."""
    pieces = prompt.with_control(lambda match: f"\0\1{match[0]}\0").split("\0")
    return [[piece.removeprefix("\1"), piece.startswith("\1")] for piece in pieces if piece]


@pytest.mark.parametrize("name", ["deepseek_v32", "deepseek_v4", "deepseek_v41"])
def test_deepseek(name: str) -> None:
    refused = 0
    for case, want in recorded(name).items():
        if want is not None:
            assert rendered(name, case).text == want, case
        elif case not in LENIENT:
            refused += 1
            with pytest.raises(RequestError, match="reasoning_effort"):
                rendered(name, case)
    assert refused == (name == "deepseek_v41")


def test_harmony(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_SYSTEM_START_DATE", "2026-01-31")
    for case, want in recorded("harmony").items():
        if want is None:
            with pytest.raises(RequestError, match="low, medium, high"):
                rendered("harmony", case)
        else:
            assert parts(rendered("harmony", case, HARMONY)) == want, case


def test_harmony_puts_instructions_and_today_s_date_where_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS", "1")
    text = rendered("harmony", "system").text
    assert text.startswith("<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nBe brief & kind.\nKnow")
    assert "developer" not in text
    monkeypatch.setenv("VLLM_SYSTEM_START_DATE", "yesterday")
    with pytest.raises(ConfigError, match="VLLM_SYSTEM_START_DATE"):
        rendered("harmony", "system")


@pytest.mark.parametrize("version", tekken_files.VERSIONS)
def test_mistral(version: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tekken_files.write(tmp_path, version), "mistral")
    for case, want in recorded(f"mistral_{version}").items():
        given = {"add_generation_prompt": True, **CASES[case]}
        if want is not None:
            assert tokenizer.encode_rendered(tokenizer.render_chat(**given)) == want, case
        elif case not in LENIENT:
            with pytest.raises(RequestError):
                tokenizer.render_chat(**given)


@pytest.mark.oracle
def test_kimi_k3_is_what_its_template_makes(llama_cpp_models: Path) -> None:
    template = (llama_cpp_models / "templates" / "Kimi-K3.jinja").read_text(encoding="utf-8")
    for name, case in CASES.items():
        names = {key: case[key] for key in ("tool_choice", "response_format") if key in case}
        variables = dict(case.get("variables", {}))
        effort, switch = variables.pop("reasoning_effort", None), variables.pop("enable_thinking", None)
        names |= variables | ({} if switch is None else {"thinking": switch})
        names |= {None: {}, "none": {"thinking": False}}.get(effort, {"thinking_effort": effort})
        options = {"tools": case.get("tools"), "add_generation_prompt": case.get("add_generation_prompt", True), **names}
        try:
            want = render_jinja_template([_as_template_reads(case["messages"])], chat_template=template, **options)[0][0]
        except Exception:  # the template refuses an effort
            with pytest.raises(RequestError, match="reasoning_effort"):
                rendered("kimi_k3", name)
            continue
        assert rendered("kimi_k3", name).text == want, name


def _as_template_reads(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    result = copy.deepcopy(messages)
    for message in result:
        if isinstance(message["content"], list):
            message["content"] = "\n".join(part["text"] for part in message["content"])
        if message["role"] == "developer":
            message["role"] = "system"
        for each in message.get("tool_calls", []):
            try:
                each["function"]["arguments"] = json.loads(each["function"]["arguments"])
            except ValueError:
                continue
    return result


def test_kimi_k3_tokenizes_attributes_apart() -> None:
    prompt = code_renderer.render("kimi_k3", [{"role": "user", "name": "$x", "content": "hi"}], controls=None)
    texts = [piece.text for piece in prompt.pieces]
    start = texts.index("user")
    assert texts[start - 2 : start + 6] == [
        " role",
        '="',
        "user",
        '"',
        " name",
        '="',
        "$x",
        '"<|sep|>hi<|close|>message<|sep|><|end_of_msg|>',
    ]


# --- what all of them do

NAMES = [name for name in plugins.names("text.renderers") if name != "mistral"]
CONTINUED = [user("Say it"), said("Well,  ")]


@pytest.mark.parametrize("name", NAMES)
def test_a_final_message_is_continued(name: str) -> None:
    given: dict[str, Any] = {"continue_final_message": True, "variables": {"thinking": True}}
    text = code_renderer.render(name, CONTINUED, **given).text
    assert text.endswith("Well,  ")
    with_thought = code_renderer.render(name, [user("Say it"), said("Well,", "hm")], **given).text
    assert with_thought.endswith("Well,")
    assert "hm" in with_thought or name == "harmony"  # it forgets what an answer was thought of
    with pytest.raises(RequestError, match="exclude each other"):
        code_renderer.render(name, CONTINUED, add_generation_prompt=True, continue_final_message=True)


@pytest.mark.parametrize("name", NAMES)
def test_no_message_is_begun_unless_asked_for(name: str) -> None:
    begun = code_renderer.render(name, [user("Hi")], add_generation_prompt=True).text
    bare = code_renderer.render(name, [user("Hi")]).text
    assert begun.startswith(bare)
    assert "assistant" not in bare.lower()
    assert "assistant" in begun.lower()


def test_mistral_continues_a_final_message_and_begins_none(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tekken_files.write(tmp_path, "v13"), "mistral")
    assert tokenizer.render_chat(CONTINUED, continue_final_message=True).text == "<s>[INST]Say it[/INST]Well,"
    thought = tokenizer.render_chat([user("Say it"), said("Well,", "hm")], continue_final_message=True)
    assert thought.text == "<s>[INST]Say it[/INST][THINK]hm[/THINK]Well,"
    with pytest.raises(RequestError, match="content or tool_calls"):
        tokenizer.render_chat([user("x"), said("")])


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("tools", {"messages": [user("x")], "tools": [{"name": "f"}]}),
    ("tools", {"messages": [user("x")], "tools": [{"function": {"name": 5}}]}),
    ("tools", {"messages": [user("x"), said("", None, {"id": "1", "function": {}})]}),
    ("messages", {"messages": [user("x"), {"role": "judge", "content": "y"}]}),
    ("messages", {"messages": [user([{"type": "image_url", "image_url": {"url": "x"}}])]}),
]


@pytest.mark.parametrize("name", [*NAMES, "mistral"])
@pytest.mark.parametrize(("parameter", "given"), WRONG)
def test_what_cannot_be_rendered_is_the_request_s_error(name: str, parameter: str, given: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        code_renderer.render(name, **given)
    assert caught.value.parameter == parameter


@pytest.mark.parametrize("name", ["deepseek_v32", "kimi_k3", "harmony"])
def test_a_result_that_answers_no_call_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="no call"):
        code_renderer.render(name, [user("x"), told("1", "y")])


@pytest.mark.parametrize("name", ["deepseek_v4", "deepseek_v41"])
def test_tasks_reminders_and_tools_of_messages(name: str) -> None:
    messages = [user("Hi") | {"task": "action"}, said("go"), user("Who?"), {"role": "latest_reminder", "content": "soon"}]
    text = code_renderer.render(name, messages, add_generation_prompt=True, variables={"thinking": False}).text
    assert "Hi<｜Assistant｜></think><｜action｜>go<｜end▁of▁sentence｜><｜User｜>Who?" in text
    assert "<｜latest_reminder｜>soon" in text
    with pytest.raises(RequestError, match="task must be one of"):
        code_renderer.render(name, [user("Hi") | {"task": "nonsense"}])
    declared = code_renderer.render(name, [{"role": "developer", "content": "x", "tools": [CLOCK], "response_format": {"a": 1}}]).text
    assert '{"name": "clock"' in declared
    assert declared.endswith('schema to reply:\n{"a": 1}')


def test_efforts_of_deepseek_v41_may_be_numbers() -> None:
    for effort, shown in ((1, "Effort: 1 "), (100, "Effort: 100 "), ("max", "Effort: 100 ")):
        assert shown in code_renderer.render("deepseek_v41", [user("x")], variables={"reasoning_effort": effort}).text
    for effort in (0, 101, True, "medium"):
        with pytest.raises(RequestError, match="from 1 to 100"):
            code_renderer.render("deepseek_v41", [user("x")], variables={"reasoning_effort": effort})


def test_a_template_of_the_request_is_stronger_than_the_renderer() -> None:
    tokenizer = byte_tokenizer(["<|end|>"], "harmony", "never read")
    assert tokenizer.render_chat([user("x")], chat_template="{{ messages[0].content }}!").text == "x!"
    assert tokenizer.apply_chat_template([user("x")], tokenize=False).endswith("<|start|>user<|message|>x<|end|>")  # type: ignore[union-attr]


def test_calls_are_the_same_as_objects_and_as_text() -> None:
    for name in NAMES:
        as_text, as_object = (
            [user("x"), said("", "t", call("a", "clock", arguments))] for arguments in ('{"b": [1, "é"]}', {"b": [1, "é"]})
        )
        given: dict[str, Any] = {"tools": [WEATHER], "variables": {"thinking": True}}
        assert code_renderer.render(name, as_text, **given).text == code_renderer.render(name, as_object, **given).text
