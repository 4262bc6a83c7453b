"""A row whose logits are no numbers ends alone: this model breaks on one token, in a real engine, among requests that never say it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.frontend.async_llm import AsyncLLM
from octavo.server.app import create_app
from tests.script_model import write
from tests.server.serving import parse_events

SCRIPTS: dict[str, list[bytes | str]] = {"g": ["all", " is", " well", " here"], "n": ["so", " far", " good", " bad", " never"]}
CHAT = "/v1/chat/completions"


def breaking_model(folder: Path) -> Path:
    """The script model with a token that has no numbers: "bad"."""
    said = write(folder, SCRIPTS)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["model.embed_tokens.weight"][said["n"][3]] = np.nan
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


@pytest.fixture
async def http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.setenv("OCTAVO_ENABLE_V1_MULTIPROCESSING", "0")
    model = str(breaking_model(tmp_path))
    options = Options(model=model, dtype="float32", max_num_seqs=8, max_num_batched_tokens=64, kv_cache_memory_bytes=1 << 20, cpu_threads=1)
    async with AsyncLLM(resolve(options, "server")) as llm:
        transport = httpx.ASGITransport(create_app(llm=llm), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
            yield client
        assert llm.num_unfinished == 0


async def test_the_others_of_the_batch_are_answered_and_the_next_ones_too(http: httpx.AsyncClient) -> None:
    def ask(key: str, **more: Any) -> Any:
        return http.post(CHAT, json={"messages": [{"role": "user", "content": f"say {key}"}], "temperature": 0, **more})

    for _ in range(2):  # the second time in blocks that held what is no number
        kinds: list[dict[str, Any]] = [{}, {"stream": True}, {"logprobs": True, "top_logprobs": 2}, {"logit_bias": {"65": 1}}]
        asked = [(key, kind, ask(key, **kind)) for kind in kinds for key in "gn"]
        replies = await asyncio.gather(*(request for _, _, request in asked))
        for (key, kind, _), reply in zip(asked, replies, strict=True):
            if "stream" in kind:
                check_stream(key, parse_events(reply.text))
            elif key == "g":
                assert reply.json()["choices"][0]["message"]["content"] == "all is well here"
            else:
                assert reply.status_code == 500
                assert "not finite" in reply.json()["error"]["message"]
    scored = await http.post("/v1/completions", json={"prompt": "one g", "prompt_logprobs": 1, "max_tokens": 1})
    assert scored.status_code == 200


def check_stream(key: str, events: list[Any]) -> None:
    text = "".join(e["choices"][0]["delta"].get("content", "") for e in events if e != "[DONE]" and "choices" in e)
    errors = [e["error"] for e in events if "error" in e]
    assert events[-1] == "[DONE]"
    if key == "g":
        assert (text, errors) == ("all is well here", [])
    else:
        assert "so far good bad".startswith(text)
        assert errors[0]["code"] == 500
