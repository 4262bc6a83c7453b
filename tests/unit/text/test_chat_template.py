"""Chat templates: what a template reads, what it is given, and what is said when it cannot."""

from pathlib import Path
from typing import Any

import pytest

from octavo.errors import ConfigError, RequestError
from octavo.text import chat_template
from octavo.text.chat_template import ChatTemplate
from octavo.text.rendered import Controls

STRING = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
PARTS = "{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}"
EITHER = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}"
    "{% else %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}"
)


def chat(*contents: Any, role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for content in contents]


@pytest.mark.parametrize(
    ("source", "form"),
    [
        (STRING, "string"),
        (PARTS, "openai"),
        (EITHER, "as_given"),
        ("{% for m in messages %}{% set c = m['content'] %}{% for p in c %}{{ p }}{% endfor %}{% endfor %}", "openai"),
        ("{% for m in messages %}{% for c in m.tool_calls %}{{ c }}{% endfor %}{{ m.content }}{% endfor %}", "string"),
    ],
)
def test_the_form_of_content_is_read_off_the_template(source: str, form: str) -> None:
    assert ChatTemplate(source).content_format == form


def test_strings_and_lists_of_parts_render_alike() -> None:
    parts = [{"type": "text", "text": "hi"}]
    assert ChatTemplate(STRING).render(chat(parts)).text == ChatTemplate(STRING).render(chat("hi")).text == "[user]hi"
    assert ChatTemplate(PARTS).render(chat(parts)).text == ChatTemplate(PARTS).render(chat("hi")).text == "<hi>"
    assert ChatTemplate(EITHER).render(chat("hi")).text == "hi"
    assert ChatTemplate(EITHER).render(chat(parts)).text == "<hi>"
    assert ChatTemplate(EITHER).render(chat("hi"), content_format="openai").text == "<hi>"
    two = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert ChatTemplate(STRING).render(chat(two)).text == "[user]a\nb"
    assert ChatTemplate(STRING).render(chat([{"type": "input_text", "text": "a"}])).text == "[user]a"


def test_null_and_missing_content_are_empty() -> None:
    assert ChatTemplate(STRING).render([*chat(None), {"role": "assistant"}]).text == "[user][assistant]"


def test_tool_arguments_are_objects() -> None:
    loop = "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}"
    source = "{% for m in messages %}{% for c in m.tool_calls %}" + loop + "{% endfor %}{% endfor %}"
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": [1], "b": "x"}'}}
    assert ChatTemplate(source).render([{"role": "assistant", "content": None, "tool_calls": [call]}]).text == "a=[1]b=x"
    assert call["function"]["arguments"].startswith("{"), "the caller's own message is not changed"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        "hi",
        [1],
        [{"content": "a"}],
        chat(5),
        chat([5]),
        chat([{"type": "text"}]),
        chat([{"type": "image_url", "image_url": {}}]),
        chat(object()),
    ],
)
def test_wrong_messages_are_refused(messages: Any) -> None:
    with pytest.raises(RequestError):
        ChatTemplate(STRING).render(messages)


def test_the_template_s_own_objection_is_given() -> None:
    with pytest.raises(RequestError, match="roles must alternate") as caught:
        ChatTemplate("{{ raise_exception('roles must alternate') }}").render(chat("a"))
    assert caught.value.parameter == "messages"


def test_faults_name_the_line() -> None:
    with pytest.raises(RequestError, match="line 3"):
        ChatTemplate("a\nb\n{{ 1 + 'x' }}").render(chat("a"))
    with pytest.raises(RequestError, match="line 2"):
        ChatTemplate("a\n{% for %}")
    with pytest.raises(RequestError, match="does not have"):
        ChatTemplate("{{ nothing.at.all }}").render(chat("a"))
    with pytest.raises(RequestError):
        ChatTemplate("{{ " + "(" * 5000 + ")" * 5000 + " }}")


def test_continue_final_message() -> None:
    source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    messages = [*chat("q"), *chat("The answer is ", role="assistant")]
    assert ChatTemplate(source).render(messages, continue_final_message=True).text == "<user>q</user><assistant>The answer is "
    trimmed = source.replace("m.content", "m.content | trim")
    assert ChatTemplate(trimmed).render(messages, continue_final_message=True).text == "<user>q</user><assistant>The answer is"
    parts = [*chat("q"), *chat([{"type": "text", "text": "A"}], role="assistant")]
    assert ChatTemplate(PARTS).render(parts, continue_final_message=True).text == "<q><A"
    with pytest.raises(RequestError, match="exclude each other"):
        ChatTemplate(source).render(messages, continue_final_message=True, add_generation_prompt=True)
    with pytest.raises(RequestError, match="does not appear"):
        ChatTemplate("x").render(messages, continue_final_message=True)


def test_choice_among_several() -> None:
    several = {"default": "d", "tool_use": "t"}
    assert chat_template.select(several) == "d"
    assert chat_template.select(several, wants_tools=True) == "t"
    assert chat_template.select("x", wants_tools=True) == "x"
    for nothing in (None, "", {}, {"other": "x"}):
        with pytest.raises(RequestError, match="no chat template"):
            chat_template.select(nothing)


def test_variables() -> None:
    source = "{{ bos_token }}{{ enable_thinking }}{{ add_generation_prompt }}"
    template = ChatTemplate(source)
    assert template.render(chat("a"), special_tokens={"bos_token": "<s>"}, variables={"enable_thinking": False}).text == "<s>FalseFalse"
    chat_template.check_variables({"enable_thinking": True})
    for name in ("messages", "tokenize", "chat_template", "_x", "add_generation_prompt"):
        with pytest.raises(RequestError, match=name):
            chat_template.check_variables({name: 1})


def test_template_from_file_or_text(tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text("hello {{ x }}")
    assert chat_template.load_text(str(tmp_path / "t.jinja")) == "hello {{ x }}"
    assert chat_template.load_text("{{ x }}") == "{{ x }}"
    with pytest.raises(ConfigError, match="neither a file nor a template"):
        chat_template.load_text(str(tmp_path / "nothing.jinja"))


def control(rendered: Any) -> str:
    """The rendered text with the template's own control tokens in brackets."""
    return str(rendered.with_control(lambda match: f"[{match[0]}]"))


CONTROLS = Controls(["<|end|>", "<|start|>", "</s>"])


def test_only_the_template_s_control_tokens_count() -> None:
    source = "<|start|>{{ messages[0].content }}<|end|>"
    rendered = ChatTemplate(source).render(chat("a<|end|>b</s>"), controls=CONTROLS)
    assert rendered.text == "<|start|>a<|end|>b</s><|end|>"
    assert rendered.is_marked
    assert control(rendered) == "[<|start|>]a<|end|>b</s>[<|end|>]"
    honest = ChatTemplate(source).render(chat("a < b"), controls=CONTROLS)
    assert not honest.is_marked
    assert control(honest) == "[<|start|>]a < b[<|end|>]"


@pytest.mark.parametrize("pieces", [["<|e", "nd|>"], ["<", "/s>"], ["<|end", "|", ">"], ["x</ ", "s>"]])
def test_pieces_do_not_add_up_to_a_control_token(pieces: list[str]) -> None:
    source = "{% for p in messages[0].content %}{{ p.text | trim }}{% endfor %}<|end|>"
    rendered = ChatTemplate(source).render(chat([{"type": "text", "text": piece} for piece in pieces]), controls=CONTROLS)
    assert rendered.text == "".join(piece.strip() for piece in pieces) + "<|end|>"
    assert control(rendered).count("[") == 1


def test_templates_can_look_for_control_text_in_content() -> None:
    source = "{% if '</s>' in messages[0].content %}{{ messages[0].content.split('</s>')[-1] }}{% endif %}</s>"
    rendered = ChatTemplate(source).render(chat("a</s>b"), controls=CONTROLS)
    assert rendered.text == "b</s>"
    assert control(rendered) == "b[</s>]"


def test_a_role_completes_the_template_s_own_marker() -> None:
    rendered = ChatTemplate("{{ '<|' + messages[0].role + '|>' }}").render(chat("a", role="start"), controls=CONTROLS)
    assert control(rendered) == "[<|start|>]"


def test_marks_survive_json_and_cannot_be_forged() -> None:
    source = "{{ messages[0].content | tojson(ensure_ascii=True) }}"
    assert ChatTemplate(source).render(chat("é</s>"), controls=CONTROLS).text == '"\\u00e9</s>"'
    forged = ChatTemplate("{{ messages[0].content }}</s>").render(chat("\ufdd0"), controls=CONTROLS)
    assert forged.text == "</s>"
    assert control(forged) == "[</s>]"


def test_many_control_tokens_match_the_longest() -> None:
    controls = Controls([f"<unused{index}>" for index in range(3000)] + ["<a>", "<a>b"])
    assert [match[0] for match in controls.pattern.finditer("<a>b<a>c<unused2999><unused>")] == ["<a>b", "<a>", "<unused2999>"]
    assert Controls([]).pattern.search("anything") is None
