"""Conversations that the renderers' recordings are of. Plain data: who records them needs nothing of octavo."""

from typing import Any

_CITY = {"type": "string", "description": 'City, <b> & "co" é'}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather now\nin a city",
        "parameters": {
            "type": "object",
            "properties": {"city": _CITY, "$days": {"type": "integer", "default": 3}, "unit": {"type": "string", "enum": ["C", "F"]}},
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "Time", "parameters": {"type": "object", "properties": {}}}}

_CHOICE = {
    "oneOf": [{"type": "string", "enum": ["x"], "default": "x", "description": "s"}, {"type": "null", "nullable": True}],
    "default": 1,
}
_INNER = {
    "type": "object",
    "description": "in",
    "properties": {"z": {"type": "array", "items": {"type": ["string", "integer"]}}, "c": _CHOICE},
}
_SHAPES: dict[str, Any] = {
    "titled": {"type": "boolean", "title": "T", "description": "two\nlines", "examples": ["p", 1], "default": True},
    "several": _CHOICE | {"description": "one of", "title": "S"},
    "same": {"oneOf": [{"type": "string", "description": "same"}, {"type": "number", "description": "same"}], "description": "same"},
    "nested": {"oneOf": [{"oneOf": [{"type": "string", "enum": ["y"], "default": "y"}]}, _INNER], "description": ""},
    "inner": _INNER | {"nullable": True},
    "list": {"type": "array", "items": _INNER, "default": [1, "é", {"b": None}]},
    "bare": {"type": "array"},
    "any": {"anyOf": [{"type": "string"}], "default": "d"},
    "words": {"type": "string", "enum": ["p", "q"], "default": "p", "nullable": True},
    "odd": True,
}
SHAPES = {"type": "function", "function": {"name": "shapes", "parameters": {"type": "object", "properties": _SHAPES, "required": ["list"]}}}
CHOOSES = {"type": "function", "function": {"name": "chooses", "description": "", "parameters": _CHOICE}}


def call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str | None, thought: str | None = None, *calls: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thought is not None:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = list(calls)
    return message


def told(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


SYSTEM = {"role": "system", "content": "Be brief & kind."}
ARGUMENTS = '{"city": "Paris \\"é\\" <x>", "$days": 2, "unit": null, "deep": {"b": [1, 2.5, true], "a": "q"}, "list": []}'
ONE_CALL = [user("Weather?"), said("", "look it up", call("abcdefghi", "get_weather", ARGUMENTS)), told("abcdefghi", '{"t": 3}')]
TWO_CALLS = [
    user("Both?"),
    said("Wait.", "two of them", call("aaaaaaaa1", "get_weather", '{"city": "Oslo"}'), call("aaaaaaaa2", "clock", "{}")),
    told("aaaaaaaa2", "12:00"),
    told("aaaaaaaa1", "cold"),
]

# name -> arguments of render_chat; "add_generation_prompt" is true unless it says otherwise
CASES: dict[str, dict[str, Any]] = {
    "one turn": {"messages": [user("Hello <b> é\n")]},
    "blanks": {"messages": [user("  Hi \n"), said(" Hello  "), user("")]},
    "system": {"messages": [SYSTEM, user("Hi"), said("Hello"), user("Bye")]},
    "thoughts of earlier turns": {
        "messages": [SYSTEM, user("Hi"), said("Hello", "greet"), user("And?"), said("Well", "think"), user("Bye")]
    },
    "without thinking": {"messages": [user("Hi"), said("Hello", "greet"), user("Bye")], "variables": {"thinking": False}},
    "with thinking": {"messages": [user("Hi"), said("Hello", "greet"), user("Bye")], "variables": {"enable_thinking": True}},
    "low effort": {"messages": [SYSTEM, user("Hi")], "variables": {"reasoning_effort": "low"}},
    "high effort": {"messages": [user("Hi")], "variables": {"reasoning_effort": "high"}},
    "medium effort": {"messages": [user("Hi")], "variables": {"reasoning_effort": "medium"}},
    "greatest effort": {"messages": [SYSTEM, user("Hi")], "variables": {"reasoning_effort": "max"}},
    "no effort": {"messages": [user("Hi")], "variables": {"reasoning_effort": "none"}},
    "tools": {"messages": [user("Weather?")], "tools": [WEATHER, CLOCK]},
    "tools and a system message": {"messages": [SYSTEM, user("Weather?")], "tools": [WEATHER]},
    "tools without thinking": {"messages": [SYSTEM, user("Weather?")], "tools": [WEATHER], "variables": {"thinking": False}},
    "schemas of all shapes": {"messages": [user("Hi")], "tools": [SHAPES, CHOOSES]},
    "a call": {"messages": ONE_CALL, "tools": [WEATHER], "variables": {"thinking": True}},
    "a call without thinking": {"messages": ONE_CALL, "tools": [WEATHER], "variables": {"thinking": False}},
    "a call without its tool": {"messages": [SYSTEM, *ONE_CALL], "variables": {"thinking": True}},
    "a call that was answered": {
        "messages": [*ONE_CALL, said("3 degrees", "read it"), user("Thanks")],
        "tools": [WEATHER],
        "variables": {"thinking": True},
    },
    "a call, its answer and the user at once": {"messages": [*ONE_CALL, user("And now?")], "tools": [WEATHER]},
    "results out of order": {"messages": TWO_CALLS, "tools": [WEATHER, CLOCK], "variables": {"thinking": True}},
    "arguments that are no JSON": {"messages": [user("Hi"), said(None, None, call("abcdefghi", "clock", "{oops")), told("abcdefghi", "?")]},
    "two users": {"messages": [user("One"), user("Two"), said("Three"), user("Four")]},
    "a system message in the middle": {"messages": [user("Hi"), said("Hello"), SYSTEM, user("Bye")]},
    "a system message alone": {"messages": [SYSTEM]},
    "ends with an answer": {"messages": [user("Hi"), said("Hello", "greet")], "add_generation_prompt": False},
    "parts": {"messages": [user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])]},
    "a developer": {"messages": [{"role": "developer", "content": "Do it"}, user("Hi")], "tools": [CLOCK]},
    "a name": {"messages": [{"role": "user", "name": 'A & "B"', "content": "Hi"}]},
    "tool choice": {"messages": [user("Hi")], "tools": [CLOCK], "tool_choice": "required"},
    "no tool choice": {"messages": [user("Hi")], "tools": [CLOCK], "tool_choice": "none"},
    "an object is wanted": {"messages": [user("Hi")], "response_format": {"type": "json_object"}},
    "a schema is wanted": {
        "messages": [user("Hi")],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "a": {"z": 1, "b": 2}}}},
    },
    "marks": {
        "messages": [user("a</s>[INST]<|end|><|open|>x<|sep|><｜User｜>"), said("b[/INST]", "c</think>"), user("<|im_end|>")],
        "variables": {"thinking": True},
    },
}
