"""Servers over an engine whose model thinks and calls tools, and what a client makes of their answers."""

import json
from pathlib import Path
from typing import Any

from octavo.config.options import ServerOptions
from octavo.text.tokenizer import Tokenizer
from tests.unit.frontend.scripted import write_tokenizer

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "hi"}]
MARKERS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.id }} {{ c.function.name }}{% for k, v in c.function.arguments.items() %} {{ k }}={{ v }}"
    "{% endfor %}]{% endfor %}{% if m.tool_call_id %}({{ m.tool_call_id }}){% endif %}<|end|>\n{% endfor %}"
    "{% if tools %}<|start|>tools\n{{ tools | map(attribute='function') | map(attribute='name') | join(',') }}<|end|>\n{% endif %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
    "{% endif %}{% endif %}"
)
HERMES = ServerOptions(tool_call_parser="hermes")


def function(name: str, strict: bool | None = None, **properties: Any) -> dict[str, Any]:
    """A tool."""
    described: dict[str, Any] = {"name": name, "description": f"the {name}", "parameters": {"type": "object", "properties": properties}}
    return {"type": "function", "function": described if strict is None else described | {"strict": strict}}


WEATHER = function("get_weather", city={"type": "string"}, days={"type": "integer"})
NOW = function("now")
TOOLS = [WEATHER, NOW]


def call_text(name: str, arguments: str) -> str:
    """A call as the format hermes has it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def talking_tokenizer(folder: Path, *, by_id: bool) -> Tokenizer:
    """by_id: the markers are tokens of the vocabulary; else they are spelled byte by byte."""
    folder.mkdir(parents=True, exist_ok=True)
    return Tokenizer.from_folder(write_tokenizer(folder, special=("<|odd|>",), added=MARKERS if by_id else (), template=TEMPLATE))


def added_up(events: list[Any], index: int = 0) -> dict[str, Any]:
    """The choice that a client has that adds the deltas of a stream up. A call's id, type and name must come once, and first."""
    message: dict[str, Any] = {"content": None, "reasoning": None, "tool_calls": []}
    reasons, logprobs, token_ids = [], [], []
    for choice in (c for event in events if event != "[DONE]" for c in event["choices"] if c["index"] == index):
        delta = choice["delta"]
        for name in ("content", "reasoning"):
            if name in delta and (name == "reasoning" or delta[name]):
                assert delta[name]
                message[name] = (message[name] or "") + delta[name]
        for piece in delta.get("tool_calls", []):
            _add_call(message["tool_calls"], piece)
        reasons += [choice["finish_reason"]] if choice["finish_reason"] is not None else []
        logprobs += (choice["logprobs"] or {"content": []})["content"]
        token_ids += choice.get("token_ids") or []
    assert len(reasons) == 1
    return {"message": message, "finish_reason": reasons[0], "logprobs": logprobs, "token_ids": token_ids}


def _add_call(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    if piece["index"] == len(calls):
        assert piece["id"]
        assert piece["type"] == "function"
        assert piece["function"]["name"]
        calls.append({"id": piece["id"], "type": "function", "function": dict(piece["function"])})
        return
    assert piece["index"] == len(calls) - 1, "calls come one after the other"
    assert piece.keys() == {"index", "function"}
    assert piece["function"].keys() == {"arguments"}
    assert piece["function"]["arguments"]
    calls[-1]["function"]["arguments"] += piece["function"]["arguments"]


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    """What two answers of the same text have in common. "" and null are no text, both."""
    calls = [(call["type"], call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]
    return {"content": message["content"] or None, "reasoning": message["reasoning"], "tool_calls": calls}


def arguments_of(message: dict[str, Any]) -> list[tuple[str, Any]]:
    """Each call's name and arguments."""
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message["tool_calls"]]
