"""Variables of the environment that the server obeys."""

import logging
import socket

import pytest

from octavo.server.api_keys import api_keys
from octavo.server.app import create_app
from octavo.server.listener import Listener
from octavo.text.tokenizer import Tokenizer
from tests.server.serving import in_process

MESSAGES = [{"role": "user", "content": "hi"}]


async def test_any_model_name_is_answered_where_names_are_not_checked(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_process(tokenizer) as served:
        assert (await served.post("/v1/chat/completions", model="else", messages=MESSAGES)).status_code == 404
        monkeypatch.setenv("VLLM_SKIP_MODEL_NAME_VALIDATION", "1")
        answer = await served.post("/v1/chat/completions", model="else", messages=MESSAGES)
        assert (answer.status_code, answer.json()["model"]) == (200, "scripted")


@pytest.mark.parametrize(
    ("variable", "limit", "body", "field"),
    [
        ("MAX_COMPLETION_PROMPTS", "2", {"prompt": ["a", "b", "c"]}, "prompt"),
        ("MAX_NUM_BAD_WORDS", "1", {"prompt": "a", "bad_words": ["x", "y"]}, "bad_words"),
        ("MAX_BAD_WORDS_TOTAL_TOKENS", "1", {"prompt": "a", "bad_words": ["abc"]}, "bad_words"),
        ("MAX_STOP_STRINGS", "1", {"prompt": "a", "stop": ["x", "y"]}, "stop"),
        ("MAX_N_SEQUENCES", "2", {"prompt": "a", "n": 3, "temperature": 1.0}, "n"),
    ],
)
async def test_limits_of_one_request(
    variable: str, limit: str, body: dict[str, object], field: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with in_process(tokenizer) as served:
        assert (await served.post("/v1/completions", **body)).status_code == 200
        monkeypatch.setenv(f"OCTAVO_{variable}", limit)
        refused = await served.post("/v1/completions", **body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)


async def test_answers_are_logged(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("VLLM_DEBUG_LOG_API_SERVER_RESPONSE", "1")
    with caplog.at_level(logging.INFO, logger="octavo"):
        async with in_process(tokenizer) as served:
            await served.events("/v1/chat/completions", messages=MESSAGES)
    said = [r.getMessage() for r in caplog.records if r.name == "octavo.server.response_log"]
    assert said[0] == "answer to POST /v1/chat/completions: 200"
    assert any("hello" in line for line in said)
    assert said[-1].endswith("data: [DONE]")


def test_the_address_that_others_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        assert Listener(listener).address() == f"http://127.0.0.1:{port}"
        monkeypatch.setenv("VLLM_HOST_IP", "10.1.2.3")
        assert Listener(listener).address() == f"http://10.1.2.3:{port}"


def test_several_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_API_KEY", "a,b")
    assert api_keys(create_app().state.server.options) == ["a", "b"]
