"""Seventy chat templates as models ship them render as transformers renders them."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from octavo.errors import RequestError
from octavo.text.chat_template import ChatTemplate

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather <b>now</b> é",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "City"}}, "required": ["city"]},
    },
}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
CONVERSATIONS: dict[str, dict[str, Any]] = {
    "one turn": {"messages": [{"role": "user", "content": "Hello <b> é"}], "add_generation_prompt": True},
    "system": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": " Hi "},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "Bye"},
        ],
        "add_generation_prompt": True,
    },
    "closed": {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]},
    "tools": {
        "messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "abcdefghi", "name": "get_weather", "content": '{"t": 3}'},
        ],
        "tools": [TOOL],
        "add_generation_prompt": True,
    },
    "two calls, with their JSON as text": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "tool_calls": [CALL, CALL | {"id": "abcdefghj"}]},
            {"role": "tool", "tool_call_id": "abcdefghi", "name": "get_weather", "content": "cold"},
            {"role": "tool", "tool_call_id": "abcdefghj", "name": "get_weather", "content": "warm"},
            {"role": "assistant", "content": "Both."},
            {"role": "user", "content": "Thanks"},
        ],
        "tools": [TOOL, TOOL],
        "add_generation_prompt": True,
    },
    "thoughts": {
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello", "reasoning_content": "greet <b>", "thinking": "greet <b>"},
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "", "reasoning_content": "look", "thinking": "look", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "abcdefghi", "name": "get_weather", "content": "3"},
        ],
        "tools": [TOOL],
        "add_generation_prompt": True,
    },
    "no thinking": {
        "messages": [{"role": "user", "content": "Hi"}],
        "enable_thinking": False,
        "thinking": False,
        "add_generation_prompt": True,
    },
    "thinking": {"messages": [{"role": "user", "content": "Hi"}], "enable_thinking": True, "thinking": True, "add_generation_prompt": True},
    "effort": {"messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": "low", "add_generation_prompt": True},
    "earlier thoughts kept": {
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello", "reasoning_content": "greet", "thinking": "greet"},
            {"role": "user", "content": "Bye"},
        ],
        "clear_thinking": False,
        "preserve_thinking": True,
        "add_generation_prompt": True,
    },
    "documents": {
        "messages": [{"role": "user", "content": "What does it say?"}],
        "documents": [{"title": "T <b>", "text": "é", "doc_id": "1"}, {"title": "U", "text": "x", "doc_id": "2"}],
        "add_generation_prompt": True,
    },
    "continued": {
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello "}],
        "continue_final_message": True,
    },
}
FIELDS = ("tools", "documents", "add_generation_prompt", "continue_final_message")


def write_arguments(messages: list[dict[str, Any]]) -> None:
    """Make the arguments of calls JSON, as clients send them."""
    for message in messages:
        for call in message.get("tool_calls", []):
            call["function"] = call["function"] | {"arguments": json.dumps(call["function"]["arguments"])}


def reference(source: str, messages: list[dict[str, Any]], options: dict[str, Any]) -> str | None:
    """What transformers renders: with the arguments of calls as objects, else as JSON; None if it cannot."""
    for as_text in (False, True):
        written = copy.deepcopy(messages)
        if as_text:
            write_arguments(written)
        for message in written:
            message["content"] = message["content"] or ""
        try:
            return str(render_jinja_template([written], chat_template=source, **options, **SPECIAL)[0][0])
        except Exception:  # a template of another syntax, or one that wants other messages
            continue
    return None


@pytest.mark.oracle
def test_equal_to_transformers(llama_cpp_models: Path) -> None:
    compared = 0
    files = sorted((llama_cpp_models / "templates").glob("*.jinja"))
    for file in files:
        source = file.read_text(encoding="utf-8")
        ours = ChatTemplate(source)
        for name, conversation in CONVERSATIONS.items():
            options = {key: value for key, value in conversation.items() if key != "messages"}
            given = {key: options[key] for key in FIELDS if key in options}
            given |= {"variables": {key: value for key, value in options.items() if key not in FIELDS}, "special_tokens": SPECIAL}
            messages = copy.deepcopy(conversation["messages"])
            want = reference(source, messages, options)
            if "as text" in name:
                write_arguments(messages)
            if want is None:
                with pytest.raises(RequestError):
                    ours.render(messages, **given)
                continue
            assert ours.render(messages, **given).text == want, (file.name, name)
            compared += 1
    assert len(files) == 70
    assert compared >= 780
