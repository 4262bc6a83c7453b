"""An agent's loop (call, result, answer) through the official client and the whole engine, in every format; and canitoolcall's probe."""

import json
from pathlib import Path
from typing import Any

import httpx
import openai
from canitoolcall import probe as canitoolcall

from octavo.config.options import Options, ServerOptions
from octavo.frontend.async_llm import AsyncLLM
from octavo.parsing import catalog
from octavo.server.app import create_app
from tests.parsing.answers import TOOLS
from tests.script_model import write
from tests.server.call_texts import TEXTS
from tests.server.real_server import SMALL, RealServer
from tests.server.talking import call_text

FINAL = "It is 20 degrees there."
FINALS = {".": FINAL, "!": "<|channel|>final<|message|>" + FINAL}  # in channels nothing is said outside of them
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.arguments | tojson }}"
    "{% endfor %}{% endfor %}{{ messages[-1].content[-1:] }}"
)
OFFERED = [{"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}} for tool in TOOLS]


def cut(text: str) -> list[bytes | str]:
    return [text[start : start + 31] for start in range(0, len(text), 31)]


async def loop(client: openai.AsyncOpenAI, key: str, last_key: str) -> tuple[Any, str | None]:
    """The first message, and the answer to the results of its calls."""
    messages: list[Any] = [{"role": "user", "content": f"How warm is it? {key}"}]
    options: dict[str, Any] = {"model": "scripted", "tools": OFFERED, "temperature": 0}
    first = await client.chat.completions.create(messages=messages, **options)
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    messages.append(message)
    messages += [{"role": "tool", "tool_call_id": call.id, "content": f"20 degrees {last_key}"} for call in message.tool_calls or []]
    last = await client.chat.completions.create(messages=messages, **options)
    assert last.choices[0].finish_reason == "stop"
    return message, last.choices[0].message.content


async def streamed_loop(client: openai.AsyncOpenAI, key: str, last_key: str) -> tuple[Any, str | None]:
    """The same by the client's own adding up of streams."""
    messages: list[Any] = [{"role": "user", "content": f"How warm is it? {key}"}]
    options: dict[str, Any] = {"model": "scripted", "tools": OFFERED, "temperature": 0}
    async with client.chat.completions.stream(messages=messages, **options) as stream:
        first = await stream.get_final_completion()
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    messages.append({"role": "assistant", "content": message.content, "tool_calls": [plain(call) for call in message.tool_calls or []]})
    messages += [{"role": "tool", "tool_call_id": call.id, "content": f"20 degrees {last_key}"} for call in message.tool_calls or []]
    async with client.chat.completions.stream(messages=messages, **options) as stream:
        last = await stream.get_final_completion()
    return message, last.choices[0].message.content


def plain(call: Any) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}}


async def test_an_agent_s_loop_runs_in_every_format(tmp_path: Path) -> None:
    assert sorted(set(catalog.names("tools")) - TEXTS.keys()) == []
    keys = dict(zip(TEXTS, LETTERS, strict=False))
    write(
        tmp_path,
        {keys[form]: cut(text) for form, text in TEXTS.items()} | {key: [text] for key, text in FINALS.items()},
        context=2048,
        hidden=1024,
    )
    options = Options(
        model=str(tmp_path), dtype="float32", chat_template=TEMPLATE, served_model_name=["scripted"], kv_cache_memory_bytes=2**24
    )
    failures: dict[str, str] = {}
    async with AsyncLLM.from_options(options) as llm:
        app = create_app(ServerOptions(tool_call_parser="hermes"), llm)
        transport = httpx.ASGITransport(app)
        async with openai.AsyncOpenAI(
            api_key="none", base_url="http://test/v1", http_client=httpx.AsyncClient(transport=transport), max_retries=0
        ) as client:
            for form in TEXTS:
                app.state.server.tool_format = form
                for run in (loop, streamed_loop):
                    try:
                        message, answer = await run(client, keys[form], "!" if form == "openai" else ".")
                        found = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]
                        assert (message.content or "", found, answer) == ("", [("get_weather", {"city": "Paris", "days": 2})], FINAL)
                    except (AssertionError, ValueError, openai.OpenAIError) as fault:
                        failures[f"{form}, {run.__name__}"] = str(fault)
    assert failures == {}, "\n".join(f"{k}: {v[:300]}" for k, v in failures.items())


# --- canitoolcall

_THOUGHT = "<think>\n9.9 is 9.90, which is more than 9.11.\n</think>\n\n"
_EVENT = (
    '{"title": "Design review", "start": "2026-10-01T15:00:00Z", "attendees": [{"name": "Ana", "email": "ana@example.com"}, '
    '{"name": "Bo", "email": "bo@example.com"}], "location": {"city": "Berlin", "room": "4.12"}}'
)
_NOTE = '{"title": "Grüße aus Zürich", "body": "Café ☕ in 東京 — naïve résumé 🚀"}'
_PARIS = call_text("get_weather", '{"city": "Paris"}')
# what the last message contains: the script's letter, and the script
SAID: dict[str, tuple[str, str]] = {
    "weather in Paris right now": ("A", "I look it up.\n\n" + _PARIS),
    "in Paris and in Tokyo": ("B", _PARIS + "\n" + call_text("get_weather", '{"city": "Tokyo"}')),
    "17 + 25": ("C", "42"),
    "Design review": ("D", call_text("create_event", _EVENT)),
    "Save a note": ("E", call_text("save_note", _NOTE)),
    "What time is it": ("F", call_text("get_server_time", "{}")),
    "Lisbon": ("<think>\n\n</think>\n\n", ""),  # a call that is forced, after a thought that the prompt closed
    "temp_c": ("H", "It is 18 degrees in Paris, and the sky is clear."),
    "9.11 or 9.9": ("I", _THOUGHT + call_text("record_answer", '{"answer": "9.9"}')),
}


def test_canitoolcall_s_probe_passes(tmp_path: Path) -> None:
    scripts = {key: cut(text) for key, text in SAID.values() if text}
    write(tmp_path, scripts | {" ": ['{"city": "Lisbon"}']}, context=4096)  # a grammar writes the rest, up to a blank and from there on
    chosen = "".join(f"{{% if {words!r} in messages[-1].content %}}{key}{{% endif %}}" for words, (key, _) in SAID.items())
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{{ tools | tojson }}" + chosen
    server = RealServer(tmp_path, *SMALL, "--chat-template", template, "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3")
    try:
        server.wait_ready()
        report = canitoolcall.probe(f"{server.url}/v1", "scripted")
    finally:
        server.close()
    assert report.summary() == {"pass": 27, "fail": 0, "error": 0, "skip": 0}, report.render_text()
    assert [outcome.warnings for outcome in report.outcomes if outcome.warnings] == []
