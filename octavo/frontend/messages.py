"""Messages: what an answer says as the message that a chat goes on with: content, reasoning and calls, in OpenAI's form."""

import dataclasses
import uuid
from collections.abc import Sequence
from typing import Any

from octavo.errors import RequestError
from octavo.frontend.reading import MarkerIds, Reader, take_apart
from octavo.parsing.events import Arguments, Content, Event, Parser, Reasoning, Tool, ToolCall
from octavo.parsing.machine import open_parser
from octavo.protocol.outputs import CompletionOutput, RequestOutput
from octavo.protocol.sampling_params import SamplingParams
from octavo.text.tokenizer import Tokenizer

PROMPT_END = 4096  # characters of a prompt that say whether it has opened what the model goes on with


def read_messages(
    output: RequestOutput,
    tokenizer: Tokenizer,
    params: SamplingParams,
    tools: Sequence[dict[str, Any]] | None,
    tool_format: str | None,
    reasoning_format: str | None,
) -> list[dict[str, Any]]:
    """One message for each answer of a request that has ended."""
    ids = output.prompt_token_ids or []
    end = (output.prompt or tokenizer.decode(ids, skip_special_tokens=False))[-PROMPT_END:]
    offered = [_tool(each) for each in tools or ()]

    def open_one(markers: MarkerIds) -> Parser:
        return open_parser(
            tool_format=tool_format if offered else None,
            reasoning_format=reasoning_format,
            tools=offered,
            markers=markers,
            prompt_end=end,
            keep_special_tokens=not params.skip_special_tokens,
        )

    return [_message(answer, tokenizer, params, ids, Reader(open_one)) for answer in output.outputs]


def _message(answer: CompletionOutput, tokenizer: Tokenizer, params: SamplingParams, ids: list[int], reader: Reader) -> dict[str, Any]:
    read = dataclasses.replace(answer)
    take_apart(read, tokenizer, params, ids, reader)
    return message_of(read.events or ())


def message_of(events: Sequence[Event]) -> dict[str, Any]:
    """The message that events are. What there is none of is left out; content is None where there is something else instead."""
    content, reasoning = "", ""
    calls: list[dict[str, Any]] = []
    for event in events:
        match event:
            case Content(text):
                content += text
            case Reasoning(text):
                reasoning += text
            case ToolCall(_, name, call_id):
                function = {"name": name, "arguments": ""}
                calls.append({"id": call_id or f"call_{uuid.uuid4().hex}", "type": "function", "function": function})
            case Arguments(index, text):
                calls[index]["function"]["arguments"] += text
    message: dict[str, Any] = {"role": "assistant", "content": content if content or not (calls or reasoning) else None}
    if reasoning:
        message["reasoning"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def _tool(given: dict[str, Any]) -> Tool:
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RequestError("tools: each must be {'type': 'function', 'function': {'name': ..., 'parameters': ...}}", parameter="tools")
    return Tool(function["name"], function.get("parameters") or {})
