"""An agent's loop with a real small model that is made to call, and then answers from the result; whole and streamed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from octavo import environment
from tests.server.real_server import RealServer

pytestmark = [pytest.mark.slow, pytest.mark.model]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Oslo", "Rome"]}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.", "parameters": PARAMETERS, "strict": True}}
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    folder = environment.test_models()
    model = None if folder is None else folder / "Qwen2.5-Coder-0.5B-Instruct"
    if model is None or not model.is_dir():
        pytest.skip("OCTAVO_TEST_MODELS has no Qwen2.5-Coder-0.5B-Instruct")
    files = sorted(model.glob("*.gguf"))
    path: Path = model if (model / "config.json").exists() else files[0]
    server = RealServer(path, "--max-model-len", "2048", "--kv-cache-memory-bytes", "256M", "--generation-config", "vllm")
    try:
        server.wait_ready(600)
        yield f"{server.url}/v1"
    finally:
        server.close()


def ask(client: openai.OpenAI, is_streamed: bool, messages: list[Any], **options: Any) -> Any:
    """The choice, however it came."""
    body: dict[str, Any] = {"model": "scripted", "messages": messages, "temperature": 0, "max_tokens": 80, **options}
    if not is_streamed:
        return client.chat.completions.create(**body).choices[0]
    with client.chat.completions.stream(**body) as stream:
        return stream.get_final_completion().choices[0]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_an_agent_s_loop(url: str, is_streamed: bool, choice: Any) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Oslo, in celsius?"}]
    with openai.OpenAI(base_url=url, api_key="none", timeout=600, max_retries=0) as client:
        first = ask(client, is_streamed, messages, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
        assert first.finish_reason == "tool_calls"
        (call,) = first.message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Oslo", "unit": "celsius"})
        told = {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}}
        messages += [
            {"role": "assistant", "content": first.message.content, "tool_calls": [told]},
            {"role": "tool", "tool_call_id": call.id, "content": json.dumps({"temperature": -7, "sky": "snow"})},
            {"role": "user", "content": "So how cold is it there? Answer in one sentence."},
        ]
        last = ask(client, is_streamed, messages, tools=TOOLS, tool_choice="none")
    assert last.finish_reason in ("stop", "length")
    assert "7" in last.message.content
    assert not last.message.tool_calls
