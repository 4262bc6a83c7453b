"""How each tool format writes a call: the fixed texts, and how arguments stand between them. Source: the models' chat templates."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from octavo.grammar.structural_tag import is_text, properties_of, value_format, with_definitions, xml_parameters

Format = dict[str, Any]
Arguments = Callable[[dict[str, Any]], list[Format]]


@dataclass(frozen=True, slots=True)
class Syntax:
    """opening, then calls with `separator` between them, then closing.

    begin and end of a call may hold {name}, and {index}, which counts the calls of one answer from 0.
    """

    begin: str
    end: str
    arguments: Arguments
    opening: str = ""
    separator: str = "\n"
    closing: str = ""
    is_repeatable: bool = True

    @property
    def is_numbered(self) -> bool:
        return "{index}" in self.begin

    def call(self, name: str, schema: dict[str, Any], index: int = 0) -> Format:
        texts = [constant(text.replace("{name}", name).replace("{index}", str(index))) for text in (self.begin, self.end)]
        elements = [texts[0], *self.arguments(schema), texts[1]]
        return {"type": "sequence", "elements": [part for part in elements if part.get("value") != ""]}


def constant(text: str) -> Format:
    return {"type": "const_string", "value": text}


def as_json(schema: dict[str, Any]) -> list[Format]:
    """One JSON object."""
    return [{"type": "json_schema", "json_schema": schema or {"type": "object"}}]


def as_parameters(begin: str, end: str) -> Arguments:
    """Each property between two texts, strings without quotes."""
    return lambda schema: xml_parameters(schema, begin, end)


def as_marked_parameters(begin: str, end: str) -> Arguments:
    """The same; in `begin` {is_text} becomes true where a string stands without quotes, else false, and {type} its type's name."""

    def make(schema: dict[str, Any]) -> list[Format]:
        elements: list[Format] = []
        for name, value in properties_of(schema).items():
            flag = "true" if is_text(value, schema) else "false"
            kind = "string" if flag == "true" else value.get("type") if isinstance(value, dict) else None
            filled = begin.replace("{name}", name).replace("{is_text}", flag).replace("{type}", kind if isinstance(kind, str) else "object")
            tag = {"type": "tag", "begin": filled, "content": value_format(value, schema), "end": end}
            elements.append(tag if name in schema.get("required", []) else {"type": "optional", "content": tag})
        return elements

    return make


def listed(schema: dict[str, Any], write: Callable[[str, Any], Format]) -> list[Format]:
    """Properties with commas between those that are there; `write` gives one of them."""
    properties, required = list(properties_of(schema).items()), schema.get("required", [])
    # from the last one backwards: what may follow when something stands before, and when nothing does
    after: list[Format] = []
    first: list[Format] = []
    for name, value in reversed(properties):
        one = write(name, value)
        with_comma = {"type": "sequence", "elements": [constant(","), one]}
        is_needed, begun = name in required, [one, *after]
        if is_needed:
            first = begun
        elif first:
            first = [{"type": "or", "elements": [_joined(begun), _joined(first)]}]
        else:
            first = [{"type": "optional", "content": _joined(begun)}]
        after = [with_comma if is_needed else {"type": "optional", "content": with_comma}, *after]
    return first


def _joined(elements: list[Format]) -> Format:
    return elements[0] if len(elements) == 1 else {"type": "sequence", "elements": elements}


def as_keywords(schema: dict[str, Any]) -> list[Format]:
    """name=value with Python's literals."""
    return listed(schema, lambda name, value: {"type": "sequence", "elements": [constant(f"{name}="), _python(value, schema)]})


def _python(value: Any, root: dict[str, Any]) -> Format:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "boolean" and "enum" not in value and "const" not in value:
        return {"type": "or", "elements": [constant("True"), constant("False")]}
    if kind == "null":
        return constant("None")
    return {"type": "json_schema", "json_schema": with_definitions(value if isinstance(value, dict) else {}, root)}


def as_bare_keys(quote: str) -> Arguments:
    """name:value with keys that have no quotes, and strings between two `quote`s."""

    def write(value: Any, root: dict[str, Any]) -> Format:
        schema = value if isinstance(value, dict) else {}
        kind = schema.get("type")
        if kind == "object" and properties_of(schema):
            return _joined([constant("{"), *listed(schema, lambda name, part: pair(name, part, root)), constant("}")])
        if kind == "array" and isinstance(schema.get("items"), dict):
            item = write(schema["items"], root)
            more = {"type": "star", "content": {"type": "sequence", "elements": [constant(","), item]}}
            items = {"type": "sequence", "elements": [item, more]}
            return _joined([constant("["), items if schema.get("minItems") else {"type": "optional", "content": items}, constant("]")])
        if is_text(schema, root):
            return {"type": "tag", "begin": quote, "content": value_format(schema, root, lambda _: False), "end": quote}
        return {"type": "json_schema", "json_schema": with_definitions(value, root)}

    def pair(name: str, value: Any, root: dict[str, Any]) -> Format:
        return {"type": "sequence", "elements": [constant(f"{name}:"), write(value, root)]}

    return lambda schema: listed(schema, lambda name, value: pair(name, value, schema))


def _json_call(begin: str, end: str, key: str = "arguments", **more: Any) -> Syntax:
    """{"name": ..., key: {...}} between two texts."""
    return Syntax(begin + '{"name": "{name}", "' + key + '": ', "}" + end, as_json, **more)


_QWEN_XML = Syntax(
    "<tool_call>\n<function={name}>\n", "</function>\n</tool_call>", as_parameters("<parameter={name}>\n", "\n</parameter>\n")
)
_HERMES = _json_call("<tool_call>\n", "\n</tool_call>")


def _dsml(section: str, space: str = "") -> Syntax:
    begin, end = f"<｜DSML｜{space}", f"</｜DSML｜{space}"
    return Syntax(
        begin + 'invoke name="{name}">\n',
        f"{end}invoke>",
        as_marked_parameters(begin + 'parameter name="{name}" string="{is_text}">', f"{end}parameter>\n"),
        opening=f"{begin}{section}>\n",
        closing=f"\n{end}{section}>",
    )


def as_elements(mark: str) -> Arguments:
    """An element for each property, with the marker before each tag; objects and arrays as elements within, the items named item."""

    def element(name: str, value: Any, root: dict[str, Any]) -> Format:
        return _joined([constant(f"{mark}<{name}>"), *content(value, root), constant(f"{mark}</{name}>")])

    def content(value: Any, root: dict[str, Any]) -> list[Format]:
        schema = value if isinstance(value, dict) else {}
        if schema.get("type") == "object" and properties_of(schema):
            return members(schema, root)
        if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
            kind = "plus" if schema.get("minItems") else "star"
            return [{"type": kind, "content": element("item", schema["items"], root)}]
        return [value_format(schema, root)]

    def members(schema: dict[str, Any], root: dict[str, Any]) -> list[Format]:
        required, made = schema.get("required", []), []
        for name, value in properties_of(schema).items():
            one = element(name, value, root)
            made.append(one if name in required else {"type": "optional", "content": one})
        return made

    return lambda schema: members(schema, schema)


_PYTHONIC = Syntax("{name}(", ")", as_keywords, opening="[", separator=", ", closing="]")

SYNTAXES: dict[str, Syntax] = {
    "hermes": _HERMES,
    "qwen3_json": _HERMES,
    "ernie45": _HERMES,
    "granite4": _HERMES,
    "qwen3_coder": _QWEN_XML,
    "qwen3_xml": _QWEN_XML,
    "deepseek_v3": Syntax(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n",
        "\n```<｜tool▁call▁end｜>",
        as_json,
        opening="<｜tool▁calls▁begin｜>",
        closing="<｜tool▁calls▁end｜>",
    ),
    "deepseek_v31": Syntax(
        "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        as_json,
        opening="<｜tool▁calls▁begin｜>",
        separator="",
        closing="<｜tool▁calls▁end｜>",
    ),
    "deepseek_v32": _dsml("function_calls"),
    "deepseek_v4": _dsml("tool_calls"),
    "deepseek_v41": _dsml("calls", " "),
    "glm45": Syntax("<tool_call>{name}\n", "</tool_call>", as_parameters("<arg_key>{name}</arg_key>\n<arg_value>", "</arg_value>\n")),
    "glm47": Syntax(
        "<tool_call>{name}", "</tool_call>", as_parameters("<arg_key>{name}</arg_key><arg_value>", "</arg_value>"), separator=""
    ),
    "kimi_k2": Syntax(
        "<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        as_json,
        opening="<|tool_calls_section_begin|>",
        separator="",
        closing="<|tool_calls_section_end|>",
    ),
    "minimax_m2": Syntax(
        '<invoke name="{name}">\n',
        "</invoke>",
        as_parameters('<parameter name="{name}">', "</parameter>\n"),
        opening="<minimax:tool_call>\n",
        closing="\n</minimax:tool_call>",
    ),
    "kimi_k3": Syntax(
        '<|open|>call tool="{name}"<|sep|>',
        "<|close|>call<|sep|>",
        as_marked_parameters('<|open|>argument key="{name}" type="{type}"<|sep|>', "<|close|>argument<|sep|>"),
        opening="<|open|>tools<|sep|>",
        separator="",
        closing="<|close|>tools<|sep|>",
    ),
    "minimax_m3": Syntax(
        ']<]minimax[>[<invoke name="{name}">',
        "]<]minimax[>[</invoke>",
        as_elements("]<]minimax[>["),
        opening="]<]minimax[>[<tool_call>",
        separator="",
        closing="]<]minimax[>[</tool_call>",
    ),
    "openai": Syntax("<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>", "", as_json, is_repeatable=False),
    "llama3_json": _json_call("", "", "parameters", separator="; "),
    "llama4_json": _json_call("", "", "parameters", separator="; "),
    "llama4_pythonic": _PYTHONIC,
    "pythonic": _PYTHONIC,
    "olmo3": Syntax("{name}(", ")", as_keywords, opening="<function_calls>\n", closing="\n</function_calls>"),
    "lfm2": Syntax("{name}(", ")", as_keywords, opening="<|tool_call_start|>[", separator=", ", closing="]<|tool_call_end|>"),
    "mistral": Syntax("[TOOL_CALLS]{name}[ARGS]", "", as_json, separator=""),
    "gemma4": Syntax("<|tool_call>call:{name}{", "}<tool_call|>", as_bare_keys('<|"|>'), separator=""),
    "functiongemma": Syntax("<start_function_call>call:{name}{", "}<end_function_call>", as_bare_keys("<escape>"), separator=""),
    "granite": _json_call("", "", opening="<|tool_call|>[", separator=", ", closing="]"),
    "phi4_mini_json": _json_call("", "", opening="functools[", separator=", ", closing="]"),
    "internlm": _json_call("<|action_start|><|plugin|>\n", "<|action_end|>", "parameters", is_repeatable=False),
    "jamba": _json_call("", "", opening="<tool_calls>[\n", separator=",\n", closing="\n]</tool_calls>"),
    "hunyuan_a13b": _json_call("", "", opening="<tool_calls>[", separator=", ", closing="]</tool_calls>"),
    "xlam": _json_call("", "", opening="[", separator=", ", closing="]"),
    "seed_oss": Syntax(
        "<seed:tool_call>\n<function={name}>\n", "</function>\n</seed:tool_call>", as_parameters("<parameter={name}>", "</parameter>\n")
    ),
    "step3": Syntax(
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">',
        "</steptml:invoke><｜tool_call_end｜>",
        as_parameters('<steptml:parameter name="{name}">', "</steptml:parameter>"),
        opening="<｜tool_calls_begin｜>",
        separator="",
        closing="<｜tool_calls_end｜>",
    ),
}
