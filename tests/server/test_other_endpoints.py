"""Batches of conversations, /invocations, models, and the endpoints for development."""

import asyncio
from typing import Any

import pytest

from octavo.config.options import ServerOptions
from octavo.errors import ConfigError
from octavo.protocol.columns import unpack
from octavo.server.app import create_app
from octavo.text.tokenizer import Tokenizer
from tests.server.serving import in_process

BATCH = "/v1/chat/completions/batch"


def says(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def told_back(tokenizer: Tokenizer) -> Any:
    """What a user said, with the seed."""
    return lambda r: tokenizer.decode(unpack(r.token_ids).tolist()).split("\n")[1].removesuffix("<|end|>") + str(r.seed)


# --- batches


async def test_each_conversation_is_answered_as_if_it_came_alone(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, told_back(tokenizer), options=ServerOptions(enable_prompt_tokens_details=True)) as served:
        batch = (await served.post(BATCH, messages=[says("a"), says("bc")], n=2, seed=5, logprobs=True)).json()
        alone = [(await served.post("/v1/chat/completions", messages=says(t), n=2, seed=5, logprobs=True)).json() for t in ("a", "bc")]
    assert [(c["index"], c["message"]["content"]) for c in batch["choices"]] == [(0, "a5"), (1, "a6"), (2, "bc5"), (3, "bc6")]
    for index, choice in enumerate(batch["choices"]):
        assert choice | {"index": index % 2} == alone[index // 2]["choices"][index % 2]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert batch["usage"][name] == sum(each["usage"][name] for each in alone)
    assert batch["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert batch["object"] == "chat.completion"


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({"messages": []}, "messages"),
        ({"messages": says("a")}, "messages"),
        ({"messages": [[]]}, "messages"),
        ({"messages": [says("a"), says("x" * 500)]}, "messages"),
        ({"messages": [says("a")], "stream": True}, "stream"),
        ({"messages": [says("a")], "use_beam_search": True}, "use_beam_search"),
        ({"messages": [says("a")], "tools": [{}]}, "tools"),
        ({"messages": [says("a")] * 20_000}, "messages"),
    ],
)
async def test_a_batch_that_is_wrong_leaves_nothing_behind(tokenizer: Tokenizer, body: dict[str, Any], parameter: str) -> None:
    async with in_process(tokenizer) as served:
        response = await served.post(BATCH, **body)
        assert served.llm.num_unfinished == 0
    assert (response.status_code, response.json()["error"]["param"]) == (400, parameter), response.text


async def test_a_failure_in_a_batch_ends_the_whole(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, "a" * 200) as served:
        served.engine.fails = {"chatcmpl-b-2": "logits hold NaN"}
        response = await served.post(BATCH, messages=[says("a"), says("b"), says("c")], request_id="b")
        assert served.llm.num_unfinished == 0
    assert response.status_code == 500
    assert "NaN" in response.json()["error"]["message"]


# --- one address for all


async def test_invocations_are_what_their_body_is(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        chat = (await served.post("/invocations", messages=says("a"))).json()
        text = (await served.post("/invocations", prompt="a", stream=None)).json()
        events = await served.events("/invocations", prompt="a")
        neither = await served.post("/invocations", input="a")
        wrong = await served.post("/invocations", prompt="a", temperature=9)
    assert (chat["object"], text["object"]) == ("chat.completion", "text_completion")
    assert events[-1] == "[DONE]"
    assert neither.status_code == 400
    assert wrong.json()["error"]["param"] == "temperature"


# --- models


async def test_models_have_names_a_root_and_a_permission(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, name="org/as-typed") as served:
        models = (await served.http.get("/v1/models")).json()
        one = (await served.http.get("/v1/models/other-name")).json()
        missing = await served.http.get("/v1/models/nope")
    assert [model["id"] for model in models["data"]] == ["scripted", "other-name"]
    assert models["object"] == "list"
    assert one == models["data"][1]
    assert (one["object"], one["owned_by"], one["root"], one["parent"], one["max_model_len"]) == (
        "model",
        "octavo",
        "org/as-typed",
        None,
        256,
    )
    assert one["permission"][0]["allow_sampling"] is True
    assert (missing.status_code, missing.json()["error"]["param"]) == (404, "model")


async def test_a_name_with_slashes_is_found(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, served_names=["org/model"]) as served:
        assert (await served.http.get("/v1/models/org/model")).json()["id"] == "org/model"


# --- development


@pytest.fixture
def _development(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "1")
    monkeypatch.setenv("OCTAVO_API_KEY", "secret")


async def test_nobody_reaches_the_endpoints_for_development_by_default(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        assert (await served.http.get("/server_info")).status_code == 404
        assert (await served.post("/reset_prefix_cache")).status_code == 404
    assert not {"/server_info", "/reset_prefix_cache", "/tokenizer_info"} & create_app().openapi()["paths"].keys()


@pytest.mark.usefixtures("_development")
async def test_server_info_has_no_secrets(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        text = (await served.http.get("/server_info")).json()
        data = (await served.http.get("/server_info?config_format=json")).json()
        wrong = await served.http.get("/server_info?config_format=xml")
    assert "scripted" in text["vllm_config"]
    assert data["vllm_config"]["model"]["served_names"] == ["scripted", "other-name"]
    assert data["vllm_env"]["OCTAVO_API_KEY"] == "(set)"
    assert "secret" not in str(data)
    assert data["system_env"]["device"] == "cpu"
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "config_format")


@pytest.mark.usefixtures("_development")
async def test_the_prefix_cache_can_be_forgotten(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        done = await served.post("/reset_prefix_cache")
        later = await served.http.post("/reset_prefix_cache?reset_running_requests=true")

        async def in_use(*_: Any) -> bool:
            return False

        served.client.call = in_use  # type: ignore[assignment]
        held = await served.post("/reset_prefix_cache")
    assert (done.status_code, done.content) == (200, b"")
    assert served.engine.calls == [("reset_prefix_cache", ())]
    assert (later.status_code, later.json()["error"]["param"]) == (400, "reset_running_requests")
    assert held.status_code == 409


# --- fingerprints


async def test_a_fingerprint_tells_settings_and_not_names(tokenizer: Tokenizer) -> None:
    async def fingerprint(options: ServerOptions | None = None, **changes: Any) -> Any:
        async with in_process(tokenizer, options=options, **changes) as served:
            found = {(await served.post("/v1/completions", prompt="a")).json()["system_fingerprint"]}
            found |= {event["system_fingerprint"] for event in (await served.events("/v1/completions", prompt="a"))[:-1]}
            found |= {event["system_fingerprint"] for event in (await served.events("/v1/chat/completions", messages=says("a")))[:-1]}
        assert len(found) == 1
        return found.pop()

    plain, renamed, other, split = await asyncio.gather(
        fingerprint(), fingerprint(served_names=["x"], path="y"), fingerprint(dtype="bfloat16"), fingerprint(tensor_parallel_size=2)
    )
    assert plain == renamed
    assert plain != other
    assert split.split("-")[2] == "tp2"
    hashed = await fingerprint(ServerOptions(fingerprint_mode="hash"), tensor_parallel_size=2)
    assert hashed == split.replace("-tp2", "")
    assert await fingerprint(ServerOptions(fingerprint_mode="custom", fingerprint_value="mine")) == "mine"
    assert await fingerprint(ServerOptions(fingerprint_mode="none")) is None


def test_a_custom_fingerprint_needs_its_value() -> None:
    with pytest.raises(ConfigError, match="fingerprint"):
        create_app(ServerOptions(fingerprint_mode="custom"))
