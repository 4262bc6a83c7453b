"""How the formats beside the recorded families are written; as writers.py."""

from collections.abc import Callable
from typing import Any

from tests.parsing.writers import Answer, Calls, Markup, Segments, Words, Writer, dumped, entries, objects

_THINK = ("<think>", "</think>")
NS = "]<]minimax[>["
_STEP = ("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", "<｜tool_call_begin｜>", "<｜tool_call_end｜>", "<｜tool_sep｜>")


def python(*, start: str, end: str, between: str, value: Callable[[Any], str]) -> Callable[[Calls], Segments]:
    """Calls as Python writes them."""

    def write(calls: Calls) -> Segments:
        segments: Segments = [Markup(start)]
        for index, (name, arguments) in enumerate(calls):
            segments.append(Markup((between if index else "") + f"{name}("))
            for position, (key, item) in enumerate(arguments.items()):
                segments += [Markup((", " if position else "") + f"{key}="), Words(value(item), is_argument=True)]
            segments.append(Markup(")"))
        return [*segments, Markup(end)]

    return write


def _function_gemma(calls: Calls) -> Segments:
    segments: Segments = []
    for name, arguments in calls:
        segments += [Markup(f"<start_function_call>call:{name}"), *_braced(arguments), Markup("<end_function_call>")]
    return segments


def _braced(value: Any) -> Segments:
    if isinstance(value, str):
        return [Markup("<escape>"), Words(value, is_argument=True), Markup("<escape>")]
    if isinstance(value, dict):
        members = [[Markup(("," if index else "") + f"{key}:"), *_braced(item)] for index, (key, item) in enumerate(value.items())]
        return [Markup("{"), *(part for member in members for part in member), Markup("}")]
    if isinstance(value, list):
        items = [[Markup("," if index else ""), *_braced(item)] for index, item in enumerate(value)]
        return [Markup("["), *(part for item in items for part in item), Markup("]")]
    return [Markup(dumped(value))]


def _elements(calls: Calls) -> Segments:
    segments: Segments = [Markup(f"{NS}<tool_call>\n")]
    for name, arguments in calls:
        segments.append(Markup(f'{NS}<invoke name="{name}">'))
        for key, value in arguments.items():
            segments += _element(key, value)
        segments.append(Markup(f"{NS}</invoke>\n"))
    return [*segments, Markup(f"{NS}</tool_call>")]


def _element(name: str, value: Any) -> Segments:
    inside: Segments
    if isinstance(value, dict):
        inside = [part for key, item in value.items() for part in _element(key, item)]
    elif isinstance(value, list):
        inside = [part for item in value for part in _element("item", item)]
    else:
        inside = [Words(value if isinstance(value, str) else "" if value is None else dumped(value), is_argument=True)]
    return [Markup(f"{NS}<{name}>"), *inside, Markup(f"{NS}</{name}>")]


def _has_elements(value: Any, is_outer: bool = True) -> bool:
    """Whether elements can write a value so that the tools' schemas tell what it is: in lists strings, in objects what is no string."""
    if isinstance(value, dict):
        if not (is_outer or value):
            return False
        return all(not isinstance(item, str | list) and item is not None and _has_elements(item, False) for item in value.values())
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return is_outer or value is not None


def _ernie(answer: Answer) -> Segments:
    """The prompt has opened the thought."""
    segments: Segments = [Words(answer.reasoning), Markup("\n</think>\n\n")]
    if answer.before:
        segments += [Markup("<response>\n"), Words(answer.before), Markup("\n</response>\n")]
    return [*segments, *_HERMES(answer.calls)] if answer.calls else segments


def _hunyuan(answer: Answer) -> Segments:
    thought: Segments = [Markup("<think>\n"), Words(answer.reasoning), Markup("\n</think>\n")]
    calls = [Markup("\n"), *_ARRAY(answer.calls)] if answer.calls else []
    return [*thought, Markup("<answer>\n"), Words(answer.before), *calls, Words(answer.after), Markup("\n</answer>")]


_HERMES = objects(start="<tool_call>\n", end="\n</tool_call>", between="\n")
_ARRAY = objects(start="<tool_calls>[", end="]</tool_calls>", between=", ", is_each=False)

MORE = {
    "ernie45": Writer(
        "ernie45",
        _HERMES,
        ("<tool_call>", "</tool_call>", "<response>", "</response>", *_THINK),
        "ernie45",
        has_text_after=False,
        write_answer=_ernie,
    ),
    "functiongemma": Writer(
        "functiongemma",
        _function_gemma,
        ("<start_function_call>", "<end_function_call>", "<escape>"),
        ends_of_values=("<escape>",),
        quotes_whole_calls=False,
    ),
    "granite": Writer(
        "granite", objects(start="<|tool_call|>[", end="]", between=", ", is_each=False), ("<|tool_call|>",), letters=("<tool_call>",)
    ),
    "granite in letters": Writer(
        "granite",
        objects(start="<tool_call>[", end="]", between=", ", is_each=False),
        (),
        "granite",
        ("Here is my thought process: ", "\n\nHere is my response: "),
        "\n",
    ),
    "hunyuan_a13b": Writer("hunyuan_a13b", _ARRAY, (), "hunyuan_a13b", write_answer=_hunyuan),
    "internlm": Writer(
        "internlm",
        objects(start="<|action_start|><|plugin|>\n", end="<|action_end|>", between="", key="parameters"),
        ("<|action_start|>", "<|plugin|>", "<|action_end|>"),
    ),
    "jamba": Writer(
        "jamba",
        objects(start="<tool_calls>[\n  ", end="\n]</tool_calls>", between=",\n  ", is_each=False),
        ("<tool_calls>", "</tool_calls>"),
        separator=" ",
    ),
    "lfm2": Writer(
        "lfm2",
        python(start="<|tool_call_start|>[", end="]<|tool_call_end|>", between=", ", value=repr),
        ("<|tool_call_start|>", "<|tool_call_end|>", *_THINK),
        "qwen3",
        _THINK,
    ),
    "llama4_json": Writer(
        "llama4_json",
        objects(start="", end="", between="", key="parameters"),
        ("<|python_start|>", "<|python_end|>"),
        has_text_and_calls=False,
    ),
    "minimax_m2": Writer(
        "minimax_m2",
        entries(
            start="<minimax:tool_call>\n",
            call='<invoke name="{name}">\n',
            entry='<parameter name="{key}">',
            entry_end="</parameter>\n",
            end="</invoke>\n",
            close="</minimax:tool_call>",
        ),
        ("<minimax:tool_call>", "</minimax:tool_call>"),
        separator="\n",
        ends_of_values=("</parameter>", "<parameter name=", "</invoke>"),
    ),
    "minimax_m3": Writer(
        "minimax_m3",
        _elements,
        (NS, "<mm:think>", "</mm:think>"),
        "minimax_m3",
        ("<mm:think>", "</mm:think>"),
        ends_of_values=(NS,),
        can_write=_has_elements,
        quotes_whole_calls=False,
    ),
    "olmo3": Writer(
        "olmo3",
        python(start="<function_calls>", end="</function_calls>", between="\n", value=dumped),
        ("<function_calls>", "</function_calls>"),
    ),
    "phi4_mini_json": Writer("phi4_mini_json", objects(start="functools[", end="]", between=", ", is_each=False), ()),
    "phi4_mini_json in tokens": Writer(
        "phi4_mini_json",
        objects(start="<|tool_call|>[", end="]<|/tool_call|>", between=", ", is_each=False),
        ("<|tool_call|>", "<|/tool_call|>"),
        letters=("functools[",),
    ),
    "pythonic": Writer("pythonic", python(start="[", end="]", between=", ", value=repr), (), has_text_and_calls=False),
    "seed_oss": Writer(
        "seed_oss",
        entries(
            start="<seed:tool_call>\n",
            call="<function={name}>\n",
            entry="<parameter={key}>",
            entry_end="</parameter>\n",
            end="</function>\n",
            close="</seed:tool_call>",
            between="\n",
            is_each=True,
        ),
        ("<seed:tool_call>", "</seed:tool_call>", "<seed:think>", "</seed:think>"),
        "seed_oss",
        ("<seed:think>", "</seed:think>\n"),
        "\n\n",
        ("</parameter>", "<parameter=", "</function>"),
        quotes_whole_calls=False,
    ),
    "step3": Writer(
        "step3",
        entries(
            start="<｜tool_calls_begin｜>",
            call='<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">',
            entry='<steptml:parameter name="{key}">',
            entry_end="</steptml:parameter>",
            end="</steptml:invoke><｜tool_call_end｜>",
            close="<｜tool_calls_end｜>",
        ),
        _STEP,
        ends_of_values=("</steptml:parameter>", "<steptml:parameter name=", "</steptml:invoke>"),
        quotes_whole_calls=False,
    ),
    "xlam": Writer("xlam", objects(start="[", end="]", between=", ", is_each=False), (), has_text_and_calls=False),
}
