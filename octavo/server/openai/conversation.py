"""Conversation: the messages of a request become the prompt that the chat template makes of them. Chat and tokenize do it alike."""

from collections.abc import Mapping
from typing import Any

from octavo.errors import RequestError
from octavo.frontend.async_llm import AsyncLLM
from octavo.frontend.inputs import EncodedPrompt
from octavo.server.openai.protocol import Conversation
from octavo.server.state import ServerState
from octavo.text.chat_template import SWITCHES


async def encode_conversation(
    state: ServerState,
    llm: AsyncLLM,
    body: Conversation,
    documents: list[dict[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
    shows_tools: bool = True,
) -> EncodedPrompt:
    """The prompt of a conversation. variables: names for the template that the request's chat_template_kwargs may override.

    shows_tools: whether the model is told of the request's tools.
    """
    if body.chat_template is not None and not state.options.trust_request_chat_template:
        raise RequestError(
            "this server takes no chat template from a request",
            "leave chat_template away, or start the server with --trust-request-chat-template",
            "chat_template",
        )
    asked = dict(variables or {})
    if (effort := asked.get("reasoning_effort")) is not None and not SWITCHES & body.chat_template_kwargs.keys():
        asked["enable_thinking"] = effort != "none"  # what templates read that have a switch and no measure
    prompt = await llm.encode_chat(
        body.messages,
        chat_template=body.chat_template,
        add_generation_prompt=body.begins_message,
        continue_final_message=body.continue_final_message,
        tools=body.tools if shows_tools else None,
        documents=documents,
        variables={**state.options.default_chat_template_kwargs, **asked, **body.chat_template_kwargs},
        tool_choice=getattr(body, "tool_choice", None),
        response_format=getattr(body, "response_format", None),
    )
    body.warn(prompt.warnings)
    tokenizer = llm.get_tokenizer()
    if body.add_special_tokens and tokenizer.adds_bos:
        prompt.token_ids.insert(0, tokenizer.bos_token_id)
    return prompt


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, of its parts together."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part if isinstance(part, str) else part.get("text") or part.get("refusal") or "" for part in parts)
