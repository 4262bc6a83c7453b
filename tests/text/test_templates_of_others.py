"""Seventy chat templates as models ship them render as transformers renders them."""

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
    "continued": {
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello "}],
        "continue_final_message": True,
    },
}


@pytest.mark.oracle
def test_equal_to_transformers(llama_cpp_models: Path) -> None:
    compared = 0
    files = sorted((llama_cpp_models / "templates").glob("*.jinja"))
    for file in files:
        source = file.read_text(encoding="utf-8")
        ours = ChatTemplate(source)
        for name, conversation in CONVERSATIONS.items():
            options = {key: value for key, value in conversation.items() if key != "messages"}
            try:
                want = render_jinja_template([conversation["messages"]], chat_template=source, **options, **SPECIAL)[0][0]
            except Exception:  # the oracle cannot render it: a template of another syntax, or one that wants other messages
                with pytest.raises(RequestError):
                    ours.render(conversation["messages"], special_tokens=SPECIAL, **options)
                continue
            assert ours.render(conversation["messages"], special_tokens=SPECIAL, **options).text == want, (file.name, name)
            compared += 1
    assert len(files) == 70
    assert compared >= 320
