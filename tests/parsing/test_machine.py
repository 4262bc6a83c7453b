"""What the machine does at its edges: torn markers, unknown tools, cut calls, thoughts that are open already, and answers made to hurt."""

import json
import time

import pytest

from octavo import plugins
from octavo.parsing.events import Arguments, Content, Event, Piece, Reasoning, Tool, ToolCall, ToolEnd, join
from octavo.parsing.machine import open_parser, reasoning_end

TOOLS = [Tool("f", {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}), Tool("get_time")]
IDS = {"<think>": 1, "</think>": 2, "<tool_call>": 3, "</tool_call>": 4}


def parse(text: str, cut: int = 1, cut_off: bool = False, **options: object) -> list[Event]:
    parser = open_parser(**{"tools": TOOLS, **options})  # type: ignore[arg-type]
    events: list[Event] = []
    for at in range(0, len(text), cut):
        events += parser.feed([Piece(text[at : at + cut])])
    return join([*events, *parser.finish(cut_off)])


def tokens(*texts: str) -> list[Piece]:
    return [Piece(text, IDS.get(text), is_special=text in IDS) for text in texts]


HERMES = {"tool_format": "hermes", "reasoning_format": "qwen3"}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "x"}}\n</tool_call>'


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 1000])
def test_text_around_two_calls(cut: int) -> None:
    assert parse(f"<think>\nhm\n</think>\n\nOne.\n{CALL}\n{CALL}", cut, **HERMES) == [
        Reasoning("hm"),
        Content("One."),
        ToolCall(0, "f"),
        Arguments(0, '{"a": "x"}'),
        ToolEnd(0),
        ToolCall(1, "f"),
        Arguments(1, '{"a": "x"}'),
        ToolEnd(1),
    ]


def test_text_is_held_back_no_longer_than_it_may_be_a_marker() -> None:
    parser = open_parser(**HERMES)
    assert parser.feed([Piece("a <tool")]) == [Content("a")]
    assert parser.feed([Piece("box> b")]) == [Content(" <toolbox> b")]


def test_a_marker_with_a_token_is_never_its_spelling() -> None:
    parser = open_parser(**HERMES, tools=TOOLS, markers=IDS.get)
    said = parser.feed(tokens("<think>", "a </think> b", "</think>", "Write ", "<tool_call>{", " or </think>."))
    assert join([*said, *parser.finish()]) == [Reasoning("a </think> b"), Content("Write <tool_call>{ or </think>.")]


def test_a_token_inside_arguments_is_text() -> None:
    parser = open_parser(**HERMES, tools=TOOLS, markers=IDS.get)
    pieces = tokens("<tool_call>", '{"name": "f", "arguments": {"a": "', "</tool_call>", '"}}', "</tool_call>")
    assert join([*parser.feed(pieces), *parser.finish()])[1] == Arguments(0, '{"a": "</tool_call>"}')


def test_special_tokens_without_meaning_show_in_arguments_only() -> None:
    eot = Piece("<|eot|>", 9, is_special=True)
    parser = open_parser(**HERMES, tools=TOOLS)
    pieces = [Piece("a"), eot, Piece('b<tool_call>{"name": "f", "arguments": {"a": "'), eot, Piece('"}}</tool_call>'), eot]
    assert join([*parser.feed(pieces), *parser.finish()])[:3] == [Content("ab"), ToolCall(0, "f"), Arguments(0, '{"a": "<|eot|>"}')]
    kept = open_parser(keep_special_tokens=True)
    assert kept.feed([Piece("a"), eot]) == [Content("a<|eot|>")]


def test_a_call_of_no_tool_is_content() -> None:
    text = '<tool_call>\n{"name": "rm", "arguments": {}}\n</tool_call>'
    assert parse(text, **HERMES) == [Content(text)]
    assert parse('{"a":1}', tool_format="llama3_json") == [Content('{"a":1}')]


def test_a_call_without_arguments_has_the_empty_object() -> None:
    assert parse('<tool_call>{"name": "get_time"}</tool_call>', **HERMES)[1] == Arguments(0, "{}")


def test_arguments_are_the_models_own_text() -> None:
    own = '{ "a" :"x\\u00e9", "n":1e2,"b":[ {"c":null} ] }'
    assert parse(f'<tool_call>{{"name":"f","arguments":{own}}}</tool_call>', **HERMES)[1] == Arguments(0, own)


def test_control_characters_and_unknown_escapes_in_strings_are_put_right() -> None:
    [_, arguments, _] = parse('<tool_call>{"name": "f", "arguments": {"a": "x\ny\\d", "b": True}}</tool_call>', **HERMES)
    assert isinstance(arguments, Arguments)
    assert json.loads(arguments.text) == {"a": "x\ny\\d", "b": True}


def test_a_call_cut_off_is_dropped_and_one_broken_off_is_content() -> None:
    begun = 'ok <tool_call>{"name": "f", "arguments": {"a": "x'
    assert parse(begun, cut_off=True, **HERMES) == [Content("ok")]
    assert parse(begun, **HERMES) == [Content(begun)]


@pytest.mark.parametrize("cut_off", [False, True])
@pytest.mark.parametrize("rest", [', {"name": "f", "arguments": {"a": , 1', ', {"name": "f", "arguments": {"a": "x'])
def test_of_an_array_that_breaks_off_the_whole_calls_stand(rest: str, cut_off: bool) -> None:
    events = parse('[TOOL_CALLS][{"name": "get_time", "arguments": {}}' + rest, tool_format="mistral", cut_off=cut_off)
    assert events[:3] == [ToolCall(0, "get_time"), Arguments(0, "{}"), ToolEnd(0)]
    is_dropped = cut_off and rest.endswith('"x')  # it might have become a call
    assert events[3:] == ([] if is_dropped else [Content(rest)])


def test_in_pieces_a_call_comes_as_it_is_written() -> None:
    parser = open_parser(**HERMES, tools=TOOLS, whole_calls=False)
    assert parser.feed([Piece('<tool_call>{"name": "f", "arguments": {"a": "x')]) == [ToolCall(0, "f"), Arguments(0, '{"a": "x')]
    assert parser.feed([Piece("y")]) == [Arguments(0, "y")]
    assert parser.finish(cut_off=True) == []


@pytest.mark.parametrize(
    ("prompt_end", "expected"),
    [
        ("<|im_start|>assistant\n", [Content("a"), Content("b")]),
        ("<|im_start|>assistant\n<think>\n", [Reasoning("a"), Content("b")]),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", [Content("a"), Content("b")]),
    ],
)
def test_the_prompt_says_whether_a_thought_is_open(prompt_end: str, expected: list[Event]) -> None:
    text = "a</think>b" if expected[0] == Reasoning("a") else "ab"
    assert parse(text, reasoning_format="qwen3", prompt_end=prompt_end) == join(expected)


def test_a_continued_answer_begins_where_its_prefix_ends() -> None:
    assert parse("b\n</think>\n\nc", reasoning_format="qwen3", prefix="<think>\na") == [Reasoning("b"), Content("c")]
    assert parse("\nb", reasoning_format="qwen3", prefix="<think>\na\n</think>\n\nx") == [Content("\nb")]
    assert parse("hi", tool_format="openai", prefix="<|channel|>final<|message|>Oh, ") == [Content("hi")]


def test_a_call_in_an_unclosed_thought_counts_if_the_answer_ends_with_it() -> None:
    assert parse(f"<think>\nhm\n{CALL}", **HERMES) == [Reasoning("hm"), ToolCall(0, "f"), Arguments(0, '{"a": "x"}'), ToolEnd(0)]
    assert parse(f"<think>I could {CALL} but no.</think>ok", **HERMES) == [Reasoning(f"I could {CALL} but no."), Content("ok")]


def test_thoughts_may_come_again() -> None:
    assert parse("<think>a</think>b<think>c</think>d", reasoning_format="qwen3") == [
        Reasoning("a"),
        Content("b"),
        Reasoning("c"),
        Content("d"),
    ]


def test_the_markers_that_end_reasoning_are_known() -> None:
    assert reasoning_end("qwen3") == ("</think>",)
    with pytest.raises(plugins.UnknownNameError, match="unknown name 'qwen4'"):
        reasoning_end("qwen4")


@pytest.mark.parametrize(
    ("tool_format", "text"),
    [
        ("glm45", "<tool_call>f<arg_key>a</arg_key><arg_value>" * 3_000),
        ("hermes", "<tool_call>" * 20_000),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": ' + "[" * 50_000),
        ("llama3_json", '{"name": "f", "arguments": ' * 5_000),
        ("llama3_json", "\n{" * 20_000),
        ("llama4_pythonic", "[" * 50_000),
        ("llama4_pythonic", "\n[f(a=[" * 5_000),
        ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\n" * 3_000),
        ("gemma4", "<|tool_call>call:f{a:" + "{a:" * 20_000),
    ],
)
def test_answers_made_to_hurt_cost_little(tool_format: str, text: str) -> None:
    began = time.process_time()
    assert not any(isinstance(event, ToolCall) for event in parse(text, 50, tool_format=tool_format))
    assert time.process_time() - began < 10


PAIR = [Tool("now", {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}})]
SECTION = """<minimax:tool_call>
<invoke name="now">
<parameter name="a">1</parameter>
<parameter name="b">2</parameter>
</invoke>
</minimax:tool_call>"""


@pytest.mark.parametrize("after", ["", "</invok", '<invoke name="n'])
def test_a_quoted_call_whose_markers_are_ordinary_text_is_text(after: str) -> None:
    """The vocabulary has the section's markers as tokens; what quotes them is free to spell them."""
    parser = open_parser(tool_format="minimax_m2", tools=PAIR, markers={"<minimax:tool_call>": 1, "</minimax:tool_call>": 2}.get)
    middle = f'\n<invoke name="now">\n<parameter name="a">{SECTION}{after}</parameter>\n<parameter name="b">x</parameter>\n</invoke>\n'
    events = parser.feed([Piece("<minimax:tool_call>", 1, True), Piece(middle), Piece("</minimax:tool_call>", 2, True)])
    assert [type(event) for event in events] == [ToolCall, Arguments, ToolEnd]
    assert json.loads("".join(event.text for event in events if isinstance(event, Arguments))) == {"a": SECTION + after, "b": "x"}


def test_what_looks_like_a_call_without_its_first_marker_does_not_reach_over_the_next_one() -> None:
    """Text may speak of `<function=`; a call that follows begins at its own marker."""
    said = "Such a call is <function=now><parameter=a>, as in"
    pieces = [
        Piece(said),
        Piece("<tool_call>", 1, True),
        Piece("\n<function=now>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n</tool_call>\n</parameter>\n</function>\n"),
        Piece("</tool_call>", 2, True),
    ]
    parser = open_parser(tool_format="qwen3_coder", tools=PAIR, markers={"<tool_call>": 1, "</tool_call>": 2}.get)
    events = join([*parser.feed(pieces), *parser.finish()])
    assert events == [Content(said), ToolCall(0, "now"), Arguments(0, '{"a": "1", "b": "</tool_call>"}'), ToolEnd(0)]


def test_a_call_is_no_call_after_its_first_marker_in_letters() -> None:
    """The vocabulary has the marker as a token: a model that spells it shows what a call looks like."""
    said = "So: <tool_call>\n<function=now></function>"
    parser = open_parser(tool_format="qwen3_coder", tools=PAIR, markers={"<tool_call>": 1, "</tool_call>": 2}.get)
    assert join([*parser.feed([Piece(letter) for letter in said]), *parser.finish()]) == [Content(said)]


def test_a_value_that_is_the_beginning_of_an_entry_is_no_forgotten_marker() -> None:
    text = "<tool_call>\n<function=now>\n<parameter=a>\n<parameter=b>\n</parameter>\n</function>\n</tool_call>"
    parser = open_parser(tool_format="qwen3_coder", tools=PAIR)
    events = [*parser.feed([Piece(text)]), *parser.finish()]
    assert "".join(event.text for event in events if isinstance(event, Arguments)) == '{"a": "<parameter=b>"}'
