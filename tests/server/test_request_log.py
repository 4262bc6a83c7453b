"""--enable-log-requests and its kin: what is logged at which level, and what never is."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from octavo.config.options import ServerOptions
from octavo.text.tokenizer import Tokenizer
from tests.server.serving import in_process

PROMPT = "my secret is hello"


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append((record.levelname, record.getMessage()))


@pytest.fixture
def lines() -> Iterator[_Lines]:
    handler, log = _Lines(), logging.getLogger("octavo.server.request_log")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    yield handler
    log.removeHandler(handler)
    log.setLevel(level)


async def ask(tokenizer: Tokenizer, options: ServerOptions, path: str, **body: Any) -> None:
    async with in_process(tokenizer, "hello you", options=options) as served:
        fields = {"messages": [{"role": "user", "content": PROMPT}], "prompt": PROMPT, "request_id": "r1"}
        assert (await served.post(path, **fields | body)).status_code == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_nothing_is_logged_by_default(tokenizer: Tokenizer, lines: _Lines, path: str) -> None:
    await ask(tokenizer, ServerOptions(), path)
    await ask(tokenizer, ServerOptions(enable_log_outputs=True), path)
    assert lines.found == []


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_parameters_are_info_and_prompts_are_debug(tokenizer: Tokenizer, lines: _Lines, path: str) -> None:
    await ask(tokenizer, ServerOptions(enable_log_requests=True, max_log_len=9), path, temperature=0.5)
    (level, info), (debug_level, debug) = lines.found
    assert (level, debug_level) == ("INFO", "DEBUG")
    assert "cmpl-r1" in info
    assert "temperature=0.5" in info
    assert "secret" not in info
    assert "prompt 'my secret'" in debug or "prompt '<|start|>'" in debug
    assert debug.count(",") == 1 + 8  # nine ids


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_answers_are_logged_whole_or_in_pieces(tokenizer: Tokenizer, lines: _Lines, path: str, stream: bool) -> None:
    await ask(tokenizer, ServerOptions(enable_log_requests=True, enable_log_outputs=True), path, stream=stream)
    told = [text for level, text in lines.found if level == "INFO"][1:]
    if stream:
        assert len(told) > 2
        assert all(text.startswith("piece 0 of request") for text in told)
    else:
        assert len(told) == 1
        assert "'hello you'" in told[0]
    assert told[-1].endswith("finish_reason stop")
    ids = [text for level, text in lines.found if level == "DEBUG" and "token ids" in text]
    assert len(ids) == 1 + len(told)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_stream_can_be_logged_whole(tokenizer: Tokenizer, lines: _Lines, path: str) -> None:
    options = ServerOptions(enable_log_requests=True, enable_log_outputs=True, enable_log_deltas=False)
    await ask(tokenizer, options, path, stream=True, n=2, seed=1)
    told = [text for level, text in lines.found if level == "INFO"][1:]
    assert len(told) == 2
    assert all("'hello you'" in text for text in told)
