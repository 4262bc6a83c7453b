"""/tokenize, /detokenize and /tokenizer_info: the ids that a request would have, and their text."""

from typing import Any

import pytest

from octavo.config.options import ServerOptions
from octavo.protocol.columns import unpack
from octavo.text.tokenizer import Tokenizer
from tests.server.serving import in_process
from tests.unit.frontend.scripted import TEMPLATE

MESSAGES = [{"role": "user", "content": "hello<|end|> 😀"}]


@pytest.mark.parametrize("text", ["", "hello <|end|>\n 😀 중", "a" * 40_000])
async def test_a_text_comes_back_as_it_was(tokenizer: Tokenizer, text: str) -> None:
    async with in_process(tokenizer) as served:
        reply = (await served.post("/tokenize", prompt=text)).json()
        back = (await served.post("/detokenize", tokens=reply["tokens"])).json()
    assert reply == {
        "count": len(reply["tokens"]),
        "max_model_len": 256,
        "tokens": tokenizer.encode(text),
        "token_strs": None,
    }
    assert back == {"prompt": text}


async def test_token_strings_are_the_vocabulary_s(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        reply = (await served.post("/tokenize", prompt="hello you", return_token_strs=True, model="other-name")).json()
    assert reply["token_strs"] == ["hello", "Ġ", "y", "o", "u"]


@pytest.mark.parametrize("extra", [{}, {"add_generation_prompt": False}, {"continue_final_message": True}])
async def test_a_conversation_has_the_ids_of_the_chat_request(tokenizer: Tokenizer, extra: dict[str, Any]) -> None:
    async with in_process(tokenizer) as served:
        reply = (await served.post("/tokenize", messages=MESSAGES, **extra)).json()
        await served.post("/v1/chat/completions", messages=MESSAGES, **extra)
        (request,) = served.engine.added
    assert reply["tokens"] == unpack(request.token_ids).tolist()
    controls = {tokenizer.token_to_id("<|end|>"), tokenizer.token_to_id("<|start|>")}
    assert sum(token in controls for token in reply["tokens"]) == {0: 3, 1: 2}.get(len(extra), 3) - ("continue_final_message" in extra)


async def test_templates_and_ignored_fields_are_as_in_chat(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        refused = await served.post("/tokenize", messages=MESSAGES, chat_template="x")
        odd = await served.post("/tokenize", messages=MESSAGES, odd=1)
    async with in_process(tokenizer, options=ServerOptions(trust_request_chat_template=True)) as served:
        taken = await served.post("/tokenize", messages=MESSAGES, chat_template="{{ a }}", chat_template_kwargs={"a": "hello"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "chat_template")
    assert odd.headers["x-ignored-fields"] == "odd"
    assert taken.json()["tokens"] == tokenizer.encode("hello")


@pytest.mark.parametrize(
    ("path", "body", "status", "parameter"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"prompt": 5}, 400, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, 400, "prompt"),
        ("/tokenize", {"prompt": None, "messages": None}, 400, "prompt"),
        ("/tokenize", {"messages": []}, 400, "messages"),
        ("/tokenize", {"messages": "x"}, 400, "messages"),
        ("/tokenize", {"messages": MESSAGES, "tools": [{}]}, 400, "tools"),
        ("/tokenize", {"messages": MESSAGES, "continue_final_message": True, "add_generation_prompt": True}, 400, "continue_final_message"),
        ("/tokenize", {"prompt": "x", "model": "nope"}, 404, "model"),
        ("/tokenize", {"prompt": "x", "return_token_strs": "yes"}, 400, "return_token_strs"),
        ("/detokenize", {}, 400, "tokens"),
        ("/detokenize", {"tokens": "x"}, 400, "tokens"),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens"),
        ("/detokenize", {"tokens": [1.5]}, 400, "tokens"),
        ("/detokenize", {"tokens": [True]}, 400, "tokens"),
        ("/detokenize", {"tokens": [10**6]}, 400, "tokens"),
        ("/detokenize", {"tokens": [2**70]}, 400, "tokens"),
        ("/detokenize", {"tokens": [5], "model": "nope"}, 404, "model"),
    ],
)
async def test_wrong_requests_are_named(tokenizer: Tokenizer, path: str, body: dict[str, Any], status: int, parameter: str) -> None:
    async with in_process(tokenizer) as served:
        response = await served.post(path, **body)
    assert (response.status_code, response.json()["error"]["param"]) == (status, parameter), response.text


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize", "/invocations", "/v1/chat/completions/batch"])
@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{:", b"[" * 100_000])
async def test_bodies_that_are_not_json_objects_are_400(tokenizer: Tokenizer, path: str, data: bytes) -> None:
    async with in_process(tokenizer) as served:
        response = await served.http.post(path, content=data)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


async def test_the_tokenizer_tells_of_itself_when_it_may(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        assert (await served.http.get("/tokenizer_info")).status_code == 404
    async with in_process(tokenizer, options=ServerOptions(enable_tokenizer_info_endpoint=True)) as served:
        info = (await served.http.get("/tokenizer_info")).json()
    assert info["tokenizer_class"] == "Tokenizer"
    assert info["chat_template"] == TEMPLATE
    assert (info["eos_token"], info["vocab_size"], info["model_max_length"]) == ("<|end|>", len(tokenizer), 256)
    assert set(info["added_tokens_decoder"].values()) == {"<|end|>", "<|start|>"}
