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
from tests.parsing.test_documents import DOCUMENTS
from tests.script_model import write
from tests.server.real_server import SMALL, RealServer
from tests.server.talking import call_text

FINAL = "It is 20 degrees there."
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.arguments | tojson }}"
    "{% endfor %}{% endfor %}{{ messages[-1].content[-1:] }}"
)
OFFERED = [{"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}} for tool in TOOLS]


_ARGUMENTS = '{"city": "Paris", "days": 2}'


def dsml(section: str, blank: str = "") -> str:
    """DeepSeek's elements."""
    mark, end = f"<｜DSML｜{blank}", f"</｜DSML｜{blank}"
    rows = f'{mark}parameter name="city" string="true">Paris{end}parameter>\n{mark}parameter name="days" string="false">2{end}parameter>\n'
    return f'{mark}{section}>\n{mark}invoke name="get_weather">\n{rows}{end}invoke>\n{end}{section}>'


# a call of get_weather for Paris and 2 days, in the formats that recorded answers are the tests of
RECORDED = {
    "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
    + _ARGUMENTS
    + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v31": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{_ARGUMENTS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v32": dsml("function_calls"),
    "deepseek_v4": dsml("tool_calls"),
    "deepseek_v41": dsml("calls", " "),
    "gemma4": '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:2}<tool_call|>',
    "glm45": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>2</arg_value>\n</tool_call>",
    "glm47": "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value><arg_key>days</arg_key><arg_value>2</arg_value>"
    "</tool_call>",
    "hermes": call_text("get_weather", _ARGUMENTS),
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    + _ARGUMENTS
    + "<|tool_call_end|><|tool_calls_section_end|>",
    "kimi_k3": '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Paris'
    '<|close|>argument<|sep|><|open|>argument key="days" type="number"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|>'
    "<|close|>tools<|sep|>",
    "llama3_json": '{"name": "get_weather", "parameters": ' + _ARGUMENTS + "}",
    "llama4_pythonic": "[get_weather(city='Paris', days=2)]",
    "mistral": "[TOOL_CALLS]get_weather[ARGS]" + _ARGUMENTS,
    "openai": "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" + _ARGUMENTS + "<|call|>",
    "qwen3_coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
    "</function>\n</tool_call>",
}


def documents_by_format() -> dict[str, tuple[str, str, tuple[tuple[str, Any], ...]]]:
    """For each format one text with calls in it, what of it is content, and the calls."""
    paris = ("get_weather", {"city": "Paris", "days": 2})
    found: dict[str, tuple[str, str, tuple[tuple[str, Any], ...]]] = {form: (text, "", (paris,)) for form, text in RECORDED.items()}
    for form, text, content, calls in DOCUMENTS:
        if calls and form not in found:
            found[form] = (text, content, calls)
    return found


def cut(text: str) -> list[bytes | str]:
    return [text[start : start + 31] for start in range(0, len(text), 31)]


async def loop(client: openai.AsyncOpenAI, key: str) -> tuple[Any, str | None]:
    """The first message, and the answer to the results of its calls."""
    messages: list[Any] = [{"role": "user", "content": f"How warm is it? {key}"}]
    options: dict[str, Any] = {"model": "scripted", "tools": OFFERED, "temperature": 0}
    first = await client.chat.completions.create(messages=messages, **options)
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    messages.append(message)
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "20 degrees ."} for call in message.tool_calls or []]
    last = await client.chat.completions.create(messages=messages, **options)
    assert last.choices[0].finish_reason == "stop"
    return message, last.choices[0].message.content


async def streamed_loop(client: openai.AsyncOpenAI, key: str) -> tuple[Any, str | None]:
    """The same by the client's own adding up of streams."""
    messages: list[Any] = [{"role": "user", "content": f"How warm is it? {key}"}]
    options: dict[str, Any] = {"model": "scripted", "tools": OFFERED, "temperature": 0}
    async with client.chat.completions.stream(messages=messages, **options) as stream:
        first = await stream.get_final_completion()
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    messages.append({"role": "assistant", "content": message.content, "tool_calls": [plain(call) for call in message.tool_calls or []]})
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "20 degrees ."} for call in message.tool_calls or []]
    async with client.chat.completions.stream(messages=messages, **options) as stream:
        last = await stream.get_final_completion()
    return message, last.choices[0].message.content


def plain(call: Any) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}}


async def test_an_agent_s_loop_runs_in_every_format(tmp_path: Path) -> None:
    documents = documents_by_format()
    assert sorted(set(catalog.names("tools")) - documents.keys()) == []
    keys = dict(zip(documents, LETTERS, strict=False))
    scripts = {keys[form]: cut(text) for form, (text, _, _) in documents.items()} | {".": cut(FINAL)}
    write(tmp_path, scripts, context=2048)
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
            for form, (_, content, calls) in documents.items():
                app.state.server.tool_format = form
                for run in (loop, streamed_loop):
                    try:
                        message, answer = await run(client, keys[form])
                        found = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]
                        assert (message.content or "", found, answer) == (content, [*calls], FINAL)
                        assert len({call.id for call in message.tool_calls}) == len(found)
                    except (AssertionError, ValueError, openai.OpenAIError) as fault:
                        failures[f"{form}, {run.__name__}"] = str(fault)
    assert failures == {}


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
    "Lisbon": ("G", call_text("get_weather", '{"city": "Lisbon"}')),
    "temp_c": ("H", "It is 18 degrees in Paris, and the sky is clear."),
    "9.11 or 9.9": ("I", _THOUGHT + call_text("record_answer", '{"answer": "9.9"}')),
}


def test_canitoolcall_s_probe_passes(tmp_path: Path) -> None:
    scripts = {key: cut(text) for key, text in SAID.values()}
    write(tmp_path, scripts | {" ": ['{"city": "Lisbon"}']}, context=4096)  # after a blank that a grammar forced
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
