"""What a request says of its prompt reaches the template or the renderer, efforts and documents and calls; warnings reach the client."""

from typing import Any

from octavo.config.options import ServerOptions
from octavo.text.tokenizer import Tokenizer
from tests.server.serving import Served, in_process
from tests.text.byte_tokenizer import byte_tokenizer
from tests.text.conversations import call, said, told, user

CHAT, TOKENIZE = "/v1/chat/completions", "/tokenize"
# shows what it is given; reads a measure of thinking and no switch, as GLM-5.3's does
ALWAYS_THINKS = (
    "{{ reasoning_effort | default('max') }} {{ clear_thinking | default('unset') }} {{ documents }} "
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.reasoning_content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.arguments.items() | list }}{% endfor %};{% endfor %}<think>"
)
SWITCHED = "{{ enable_thinking | default('unset') }} {{ thinking | default('unset') }} {{ reasoning_effort | default('unset') }}"


def with_template(template: str) -> Tokenizer:
    tokenizer = byte_tokenizer(["<|end|>"], template=template)
    tokenizer.special_tokens_map["eos_token"] = "<|end|>"
    return tokenizer


async def prompt(served: Served, **body: Any) -> str:
    """The text that the model reads."""
    response = await served.post(CHAT, **{"messages": [user("hi")], "max_tokens": 1, "return_prompt_text": True, **body})
    assert response.status_code == 200, response.text
    return str(response.json()["prompt_text"])


async def test_efforts_are_switches_too() -> None:
    async with in_process(with_template(SWITCHED)) as served:
        assert await prompt(served) == "unset unset unset"
        assert await prompt(served, reasoning_effort="low") == "True unset low"
        assert await prompt(served, reasoning_effort="none") == "False unset none"
        assert await prompt(served, reasoning_effort="high", chat_template_kwargs={"enable_thinking": False}) == "False unset high"
        assert await prompt(served, reasoning_effort="high", chat_template_kwargs={"thinking": False}) == "unset False high"
        assert await prompt(served, chat_template_kwargs={"reasoning_effort": 7}) == "unset unset 7"


async def test_the_server_s_variables_give_way_to_the_request_s() -> None:
    options = ServerOptions(default_chat_template_kwargs={"enable_thinking": False, "reasoning_effort": "low"})
    async with in_process(with_template(SWITCHED), options=options) as served:
        assert await prompt(served) == "False unset low"
        assert await prompt(served, reasoning_effort="high") == "True unset high"
        assert await prompt(served, chat_template_kwargs={"enable_thinking": True}) == "True unset low"


async def test_a_model_that_always_thinks_says_so_and_names_the_effort() -> None:
    async with in_process(with_template(ALWAYS_THINKS)) as served:
        for stream in (False, True):
            body = {"messages": [user("hi")], "max_tokens": 1, "chat_template_kwargs": {"enable_thinking": False}, "stream": stream}
            response = await served.post(CHAT, **body)
            assert response.status_code == 200
            assert "always thinks" in response.headers["x-warnings"]
            assert "reasoning_effort" in response.headers["x-warnings"]
        response = await served.post(TOKENIZE, messages=[user("hi")], chat_template_kwargs={"thinking": False})
        assert "reasoning_effort" in response.headers["x-warnings"]
        for harmless in ({}, {"chat_template_kwargs": {"enable_thinking": True}}, {"reasoning_effort": "low"}):
            response = await served.post(CHAT, messages=[user("hi")], max_tokens=1, **harmless)
            assert "x-warnings" not in response.headers


async def test_clear_thinking_documents_thoughts_and_calls_reach_the_template() -> None:
    messages = [user("w?"), said(None, "hm", call("1", "f", '{"a": 1}')), told("1", "ok"), user("so?")]
    async with in_process(with_template(ALWAYS_THINKS)) as served:
        shown = await prompt(served, messages=messages, documents=[{"t": "d"}], chat_template_kwargs={"clear_thinking": False})
        assert shown == "max False [{'t': 'd'}] user:w?;assistant:hm[('a', 1)];tool:ok;user:so?;<think>"
        again = await prompt(served, messages=messages[:1], add_generation_prompt=False, reasoning_effort="low")
        assert again == "low unset None user:w?;<think>"


async def test_a_renderer_makes_the_prompt() -> None:
    marks = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>", "<|return|>", "<|constrain|>"]
    tokenizer = byte_tokenizer(marks, "harmony")
    tokenizer.special_tokens_map["eos_token"] = "<|return|>"
    async with in_process(tokenizer, max_model_len=4096) as served:
        body = {"messages": [user("a<|end|>b")], "max_tokens": 1, "return_token_ids": True, "reasoning_effort": "high"}
        answer = (await served.post(CHAT, **body)).json()
        text = tokenizer.decode(answer["prompt_token_ids"])
        assert "\n\nReasoning: high\n\n" in text
        assert text.endswith("<|start|>user<|message|>a<|end|>b<|end|><|start|>assistant")
        assert [i for i in answer["prompt_token_ids"] if i >= 256] == [
            tokenizer.token_to_id(t) for t in [*marks[:1], marks[2], marks[1]] * 2 + marks[:1]
        ]
        refused = await served.post(CHAT, messages=[user("x")], reasoning_effort="max")
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "reasoning_effort"
        continued = {"messages": [user("x"), said("Well")], "continue_final_message": True, "add_generation_prompt": False}
        tokens = (await served.post(TOKENIZE, **continued)).json()["tokens"]
        assert tokenizer.decode(tokens).endswith("<|channel|>final<|message|>Well")


async def test_a_template_given_at_start_is_stronger_than_the_renderer() -> None:
    tokenizer = byte_tokenizer(["<|return|>"], "harmony")
    tokenizer.special_tokens_map["eos_token"] = "<|return|>"
    async with in_process(tokenizer, chat_template="{{ messages[0].content }}!") as served:
        assert await prompt(served) == "hi!"
