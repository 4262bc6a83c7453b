"""How each format is written: the inverse of the parsers, for tests. An answer becomes segments, markup apart from the model's own text.

A new format gets a line in WRITERS and is then tested with all the others.
"""

import html
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Markup:
    """Text of the format: the tokens in it are tokens."""

    text: str


@dataclass(frozen=True)
class Words:
    """Text of the model. is_argument: inside a call's arguments, where a special token is text too."""

    text: str
    is_argument: bool = False


Segments = list[Markup | Words]
Calls = Sequence[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Answer:
    """What a model wants to say."""

    reasoning: str = ""
    before: str = ""
    calls: Calls = ()
    after: str = ""


@dataclass(frozen=True)
class Writer:
    """One format. write_calls: all calls of an answer; think, separator: around reasoning, and between content and a call.

    quotes: for raw values, the markup that ends one (whatever white space between), so that a value may not hold it.
    has_text_and_calls, has_text_after: whether such answers can be written. quotes_whole_calls: whether a raw value may quote whole calls.
    can_write: whether an argument can be written. forgives: what in a value reads as the next entry, the marker that closes this one
    forgotten; models do forget it, so that such a value, which the format has no escape for, is read otherwise. letters: markers that
    count in letters whatever tokens there are, so that content cannot hold them.
    """

    tool_format: str
    write_calls: Callable[[Calls], Segments]
    tokens: tuple[str, ...]
    reasoning_format: str | None = None
    think: tuple[str, str] = ("", "")
    separator: str = ""
    ends_of_values: tuple[str, ...] = ()
    has_text_and_calls: bool = True
    has_text_after: bool = True
    write_answer: Callable[[Answer], Segments] | None = None
    quotes_whole_calls: bool = True
    can_write: Callable[[Any], bool] = lambda value: True
    forgives: str = ""  # a pattern
    letters: tuple[str, ...] = ()

    def write(self, answer: Answer) -> Segments:
        if self.write_answer:
            return self.write_answer(answer)
        segments: Segments = []
        if answer.reasoning:
            segments += [Markup(self.think[0]), Words(answer.reasoning), Markup(self.think[1])]
        if answer.before:
            segments.append(Words(answer.before))
        if answer.calls:
            if answer.before:
                segments.append(Markup(self.separator))
            segments += self.write_calls(answer.calls)
        if answer.after:
            segments.append(Words(answer.after))
        return segments


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def each(
    *, before: str = "", name_end: str = "", after: str = "", between: str = "", start: str = "", end: str = ""
) -> Callable[[Calls], Segments]:
    """Calls of a name and a JSON object each."""

    def write(calls: Calls) -> Segments:
        segments: Segments = [Markup(start)]
        for index, (name, arguments) in enumerate(calls):
            segments += [Markup((between if index else "") + before.format(index=index) + name + name_end.format(index=index))]
            segments += [Words(dumped(arguments), is_argument=True), Markup(after)]
        return [*segments, Markup(end)]

    return write


def objects(*, start: str, end: str, between: str, key: str = "arguments", is_each: bool = True) -> Callable[[Calls], Segments]:
    """Calls as JSON objects, each with start and end around it, or all of them."""

    def write(calls: Calls) -> Segments:
        segments: Segments = [] if is_each else [Markup(start)]
        for index, (name, arguments) in enumerate(calls):
            opening = (between if index else "") + (start if is_each else "")
            segments += [Markup(f'{opening}{{"name": "{name}", "{key}": '), Words(dumped(arguments), is_argument=True)]
            segments.append(Markup("}" + (end if is_each else "")))
        return segments if is_each else [*segments, Markup(end)]

    return write


def entries(
    *,
    call: str,
    entry: str,
    entry_end: str,
    end: str,
    start: str = "",
    close: str = "",
    between: str = "",
    is_each: bool = False,
    typed: Sequence[str] = (),
) -> Callable[[Calls], Segments]:
    """Calls of marked keys and values. typed: words for string, number, boolean, null, array, object in an entry's {type}."""

    def write(calls: Calls) -> Segments:
        segments: Segments = [] if is_each else [Markup(start)]
        for index, (name, arguments) in enumerate(calls):
            segments.append(Markup((between if index else "") + (start if is_each else "") + call.format(name=name, index=index + 1)))
            for key, value in arguments.items():
                word = typed[_kind(value)] if typed else ""
                segments.append(Markup(entry.format(key=html.escape(key) if typed else key, type=word)))
                segments += [Words(value if isinstance(value, str) else dumped(value), is_argument=True), Markup(entry_end)]
            segments.append(Markup(end + (close if is_each else "")))
        return segments if is_each else [*segments, Markup(close)]

    return write


def _kind(value: Any) -> int:
    kinds = (str, bool, int | float, type(None), list, dict)
    return (0, 2, 1, 3, 4, 5)[next(index for index, kind in enumerate(kinds) if isinstance(value, kind))]


def _dsml(section: str, space: str = "") -> Callable[[Calls], Segments]:
    return entries(
        start=f"<｜DSML｜{space}{section}>\n",
        call=f'<｜DSML｜{space}invoke name="{{name}}">\n',
        entry=f'<｜DSML｜{space}parameter name="{{key}}" string="{{type}}">',
        entry_end=f"</｜DSML｜{space}parameter>\n",
        end=f"</｜DSML｜{space}invoke>\n",
        close=f"</｜DSML｜{space}{section}>",
        typed=("true", "false", "false", "false", "false", "false"),
    )


def _braces(calls: Calls) -> Segments:
    segments: Segments = []
    for name, arguments in calls:
        segments += [Markup(f"<|tool_call>call:{name}"), *_brace_value(arguments), Markup("<tool_call|>")]
    return segments


def _brace_value(value: Any) -> Segments:
    if isinstance(value, str):
        return [Markup('<|"|>'), Words(value, is_argument=True), Markup('<|"|>')]
    if isinstance(value, dict):
        members = [[Markup(("," if index else "") + f"{key}:"), *_brace_value(item)] for index, (key, item) in enumerate(value.items())]
        return [Markup("{"), *(part for member in members for part in member), Markup("}")]
    if isinstance(value, list):
        items = [[Markup("," if index else ""), *_brace_value(item)] for index, item in enumerate(value)]
        return [Markup("["), *(part for item in items for part in item), Markup("]")]
    return [Markup(dumped(value))]


def _python(calls: Calls) -> Segments:
    segments: Segments = [Markup("[")]
    for index, (name, arguments) in enumerate(calls):
        segments.append(Markup((", " if index else "") + f"{name}("))
        for position, (key, value) in enumerate(arguments.items()):
            segments += [Markup((", " if position else "") + f"{key}="), Words(repr(value), is_argument=True)]
        segments.append(Markup(")"))
    return [*segments, Markup("]")]


def _harmony(answer: Answer) -> Segments:
    messages: list[Segments] = []
    if answer.reasoning:
        messages.append([Markup("<|channel|>analysis<|message|>"), Words(answer.reasoning)])
    if answer.before:
        messages.append([Markup("<|channel|>commentary<|message|>"), Words(answer.before)])
    for index, (name, arguments) in enumerate(answer.calls):
        head = (
            f" to=functions.{name}<|channel|>commentary <|constrain|>json<|message|>",
            f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>",
            f"<|channel|>analysis to=functions.{name} json<|message|>",
        )[index % 3]
        messages.append([Markup(head), Words(dumped(arguments), is_argument=True)])
    if answer.after:
        messages.append([Markup("<|channel|>final<|message|>"), Words(answer.after)])
    segments: Segments = []
    for index, message in enumerate(messages):
        is_call = index and "functions" in messages[index - 1][0].text
        segments += [Markup((("<|call|>" if is_call else "<|end|>") + "<|start|>assistant") if index else ""), *message]
    return segments


def _xtml(answer: Answer) -> Segments:
    segments: Segments = []
    if answer.reasoning:
        segments += [Markup("<|open|>think<|sep|>"), Words(answer.reasoning), Markup("<|close|>think<|sep|>")]
    if answer.before or answer.after:
        segments += [Markup("<|open|>response<|sep|>"), Words(answer.before + answer.after), Markup("<|close|>response<|sep|>")]
    if answer.calls:
        segments += entries(
            start="<|open|>tools<|sep|>",
            call='<|open|>call tool="{name}" index="{index}"<|sep|>',
            entry='<|open|>argument key="{key}" type="{type}"<|sep|>',
            entry_end="<|close|>argument<|sep|>",
            end="<|close|>call<|sep|>",
            close="<|close|>tools<|sep|>",
            typed=("string", "number", "boolean", "null", "array", "object"),
        )(answer.calls)
    return [*segments, Markup("<|close|>message<|sep|>")]


_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>")
_THINK = ("<think>", "</think>")
_GLM = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", *_THINK)

WRITERS = {
    "hermes": Writer(
        "hermes",
        objects(start="<tool_call>\n", end="\n</tool_call>", between="\n"),
        ("<tool_call>", "</tool_call>", *_THINK),
        "qwen3",
        ("<think>\n", "\n</think>\n\n"),
        "\n",
    ),
    "qwen3_coder": Writer(
        "qwen3_coder",
        entries(
            start="<tool_call>\n",
            call="<function={name}>\n",
            entry="<parameter={key}>\n",
            entry_end="\n</parameter>\n",
            end="</function>\n",
            close="</tool_call>",
            between="\n",
            is_each=True,
        ),
        ("<tool_call>", "</tool_call>", *_THINK),
        "qwen3",
        ("<think>\n", "\n</think>\n\n"),
        "\n\n",
        ("</parameter>", "<parameter=", "</function>"),
        forgives=r"\n<parameter=\w+>\n",
    ),
    "deepseek_v3": Writer(
        "deepseek_v3",
        each(
            start="<｜tool▁calls▁begin｜>",
            before="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
            name_end="\n```json\n",
            after="\n```<｜tool▁call▁end｜>",
            between="\n",
            end="<｜tool▁calls▁end｜>",
        ),
        (*_DEEPSEEK, *_THINK),
        "deepseek_v3",
        _THINK,
    ),
    "deepseek_v31": Writer(
        "deepseek_v31",
        each(
            start="<｜tool▁calls▁begin｜>",
            before="<｜tool▁call▁begin｜>",
            name_end="<｜tool▁sep｜>",
            after="<｜tool▁call▁end｜>",
            end="<｜tool▁calls▁end｜>",
        ),
        (*_DEEPSEEK, *_THINK),
        "deepseek_v3",
        _THINK,
    ),
    **{
        name: Writer(
            name,
            _dsml(section, space),
            ("｜DSML｜", *_THINK),
            "deepseek_v3",
            _THINK,
            "\n\n",
            (f"</｜DSML｜{space}parameter>", f"<｜DSML｜{space}parameter name=", f"</｜DSML｜{space}invoke>"),
        )
        for name, section, space in (
            ("deepseek_v32", "function_calls", ""),
            ("deepseek_v4", "tool_calls", ""),
            ("deepseek_v41", "calls", " "),
        )
    },
    **{
        name: Writer(
            name,
            entries(
                start="<tool_call>",
                call="{name}" + gap,
                entry="<arg_key>{key}</arg_key>" + gap + "<arg_value>",
                entry_end="</arg_value>" + gap,
                end="</tool_call>",
                between=gap,
                is_each=True,
            ),
            _GLM,
            "glm45",
            _THINK if not gap else ("<think>", "</think>\n"),
            gap,
            ("</arg_value>", "<arg_key>", "</tool_call>"),
        )
        for name, gap in (("glm45", "\n"), ("glm47", ""))
    },
    "kimi_k2": Writer(
        "kimi_k2",
        each(
            start="<|tool_calls_section_begin|>",
            before="<|tool_call_begin|>functions.",
            name_end=":{index}<|tool_call_argument_begin|>",
            after="<|tool_call_end|>",
            end="<|tool_calls_section_end|>",
        ),
        (
            *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
            *("<|tool_call_argument_begin|>", "<|tool_call_end|>", *_THINK),
        ),
        "kimi_k2",
        _THINK,
    ),
    "kimi_k3": Writer(
        "kimi_k3",
        lambda calls: [],
        ("<|open|>", "<|close|>", "<|sep|>"),
        "kimi_k3",
        ends_of_values=("<|close|>argument<|sep|>", "<|open|>argument key=", "<|close|>call<|sep|>"),
        has_text_after=False,
        write_answer=_xtml,
    ),
    "mistral": Writer(
        "mistral",
        each(before="[TOOL_CALLS]", name_end="[ARGS]"),
        ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"),
        "mistral",
        ("[THINK]", "[/THINK]"),
    ),
    "mistral array": Writer(
        "mistral",
        objects(start="[TOOL_CALLS] [", end="]", between=", ", is_each=False),
        ("[TOOL_CALLS]",),
    ),
    "llama3_json": Writer(
        "llama3_json",
        objects(start="", end="", between="; ", key="parameters"),
        ("<|python_tag|>",),
        has_text_and_calls=False,
    ),
    "llama3_json tagged": Writer(
        "llama3_json",
        objects(start="<|python_tag|>", end="", between="; ", key="parameters", is_each=False),
        ("<|python_tag|>",),
        has_text_after=False,
    ),
    "llama4_pythonic": Writer("llama4_pythonic", _python, ("<|python_start|>", "<|python_end|>"), has_text_and_calls=False),
    "gemma4": Writer(
        "gemma4",
        _braces,
        ("<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>"),
        "gemma4",
        ("<|channel>thought\n", "\n<channel|>"),
        ends_of_values=('<|"|>',),
        quotes_whole_calls=False,
    ),
    "openai": Writer(
        "openai",
        lambda calls: [],
        ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>"),
        "openai_gptoss",
        write_answer=_harmony,
    ),
}
