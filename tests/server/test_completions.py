"""/v1/completions in process: prompts of all kinds, echo, logprobs in the old shape, streams."""

from typing import Any

import pytest

from octavo.protocol.columns import unpack
from octavo.text.tokenizer import Tokenizer
from tests.server.serving import in_process

PATH = "/v1/completions"


def echoing(tokenizer: Tokenizer) -> Any:
    return lambda request: "<" + tokenizer.decode(unpack(request.token_ids).tolist()) + ">"


async def test_sixteen_tokens_are_the_default(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, "a" * 50) as served:
        reply = (await served.post(PATH, prompt="hi")).json()
        null = (await served.post(PATH, prompt="hi", max_tokens=None)).json()
    assert reply["object"] == "text_completion"
    assert reply["id"].startswith("cmpl-")
    assert reply["choices"][0]["text"] == null["choices"][0]["text"] == "a" * 16
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"] == {"prompt_tokens": 2, "total_tokens": 18, "completion_tokens": 16, "prompt_tokens_details": None}


async def test_prompts_of_every_kind_are_answered_in_order(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("cd")
    async with in_process(tokenizer, echoing(tokenizer)) as served:
        texts = []
        for prompt in ("ab", ids, ["ab", "cd"], [ids, ids[:1]]):
            reply = (await served.post(PATH, prompt=prompt)).json()
            assert [c["index"] for c in reply["choices"]] == list(range(len(reply["choices"])))
            texts.append([c["text"] for c in reply["choices"]])
    assert texts == [["<ab>"], ["<cd>"], ["<ab>", "<cd>"], ["<cd>", "<c>"]]


async def test_n_of_several_prompts_are_numbered_by_prompt(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, lambda r: f"{tokenizer.decode(unpack(r.token_ids).tolist())}{r.seed}") as served:
        body: dict[str, Any] = {"prompt": ["a", "b"], "n": 2, "seed": 3}
        reply = (await served.post(PATH, **body)).json()
        events = (await served.events(PATH, **body, stream_options={"include_usage": True}))[:-1]
    assert [(c["index"], c["text"]) for c in reply["choices"]] == [(0, "a3"), (1, "a4"), (2, "b3"), (3, "b4")]
    streamed = dict.fromkeys(range(4), "")
    for event in events[:-1]:
        (choice,) = event["choices"]
        streamed[choice["index"]] += choice["text"]
    assert streamed == {c["index"]: c["text"] for c in reply["choices"]}
    assert events[-1]["usage"] == reply["usage"]
    assert sorted(e["choices"][0]["index"] for e in events[:-1] if e["choices"][0]["finish_reason"]) == [0, 1, 2, 3]


@pytest.mark.parametrize("prompt", ["hello\n😀 you", [65, 66, 67]])
async def test_echo_puts_the_prompt_before_the_text(tokenizer: Tokenizer, prompt: Any) -> None:
    text = prompt if isinstance(prompt, str) else tokenizer.decode(prompt)
    async with in_process(tokenizer, "ok") as served:
        reply = (await served.post(PATH, prompt=prompt, echo=True)).json()
        events = (await served.events(PATH, prompt=prompt, echo=True))[:-1]
        alone = (await served.post(PATH, prompt=prompt, echo=True, max_tokens=0)).json()
    assert reply["choices"][0]["text"] == text + "ok"
    assert "".join(e["choices"][0]["text"] for e in events) == text + "ok"
    assert alone["choices"][0]["text"] == text
    assert alone["choices"][0]["finish_reason"] == "length"
    assert alone["usage"]["completion_tokens"] == 0


async def test_echoed_logprobs_join_to_the_text_and_their_offsets_fit(tokenizer: Tokenizer) -> None:
    prompt = "\nhello 😀"
    async with in_process(tokenizer, "ok 中") as served:
        body: dict[str, Any] = {"prompt": prompt, "echo": True, "logprobs": 2, "max_tokens": 5}
        reply = (await served.post(PATH, **body)).json()["choices"][0]
        events = (await served.events(PATH, **body))[:-1]
        plain = (await served.post(PATH, prompt=prompt, logprobs=2, max_tokens=5)).json()["choices"][0]
    logprobs = reply["logprobs"]
    assert reply["text"] == prompt + "ok \ufffd"  # the last character is torn by the limit
    assert "".join(logprobs["tokens"]) == reply["text"][:-1]
    assert len(logprobs["tokens"]) == len(tokenizer.encode(prompt)) + 5
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    for offset, token in zip(logprobs["text_offset"], logprobs["tokens"]):
        assert reply["text"].startswith(token, offset)
    joined: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for event in events:
        for name, values in (event["choices"][0]["logprobs"] or {}).items():
            joined[name] += values
    assert joined == logprobs
    assert [len(top) for top in plain["logprobs"]["top_logprobs"]] == [2] * 5


async def test_different_tokens_with_one_text_keep_an_entry_each(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, "😀") as served:
        reply = (await served.post(PATH, prompt="x", logprobs=5)).json()["choices"][0]
    assert [len(top) for top in reply["logprobs"]["top_logprobs"]] == [5] * len(reply["logprobs"]["tokens"])


async def test_scoring_gives_prompt_logprobs_and_no_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("hello you")
    async with in_process(tokenizer, "never said") as served:
        reply = (await served.post(PATH, prompt=ids, prompt_logprobs=1, max_tokens=0, return_token_ids=True)).json()
    choice = reply["choices"][0]
    assert choice["text"] == ""
    assert choice["token_ids"] == []
    assert choice["prompt_token_ids"] == ids
    assert reply["usage"]["completion_tokens"] == 0
    assert choice["prompt_logprobs"][0] is None
    assert [str(t) in entry for t, entry in zip(ids[1:], choice["prompt_logprobs"][1:])] == [True] * (len(ids) - 1)


async def test_a_stream_ends_with_an_empty_text_and_the_reason(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, "abcdef") as served:
        events = await served.events(PATH, prompt="x", max_tokens=3, return_token_ids=True)
    assert events[-1] == "[DONE]"
    choices = [e["choices"][0] for e in events[:-1]]
    assert [c["text"] for c in choices] == ["a", "b", "c", ""]
    assert [c["finish_reason"] for c in choices] == [None, None, None, "length"]
    assert [t for c in choices for t in c["token_ids"]] == tokenizer.encode("abc")


@pytest.mark.parametrize(
    ("body", "parameter", "words"),
    [
        ({}, "prompt", "prompt must be"),
        ({"prompt": []}, "prompt", "non-empty"),
        ({"prompt": [[]]}, "prompt", "empty"),
        ({"prompt": ""}, "prompt", "empty"),
        ({"prompt": [1, "a"]}, "prompt", "prompt must be"),
        ({"prompt": {"a": 1}}, "prompt", "prompt must be"),
        ({"prompt": [-1]}, "prompt", "-1"),
        ({"prompt": [10**6]}, "prompt", "outside the vocabulary"),
        ({"prompt": [2**70]}, "prompt", "outside the vocabulary"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens", "at least 1"),
        ({"prompt": "x", "max_tokens": -1}, "max_tokens", "at least 1"),
        ({"prompt": "x", "suffix": "y"}, "suffix", "suffix is not available"),
        ({"prompt": "x", "best_of": 3}, "best_of", "best_of other than 1 or n is not available"),
        ({"prompt": "x", "logprobs": 30}, "logprobs", "at most 20"),
        ({"prompt": "x", "logprobs": True}, "logprobs", "integer"),
        ({"prompt": "x", "stream": True, "prompt_logprobs": 1}, "prompt_logprobs", "prompt_logprobs"),
        ({"prompt": "x", "cache_salt": ""}, "cache_salt", "at least 1"),
        ({"prompt": ["fine", "x" * 1000]}, "prompt", "maximum context length"),
    ],
)
async def test_wrong_requests_are_named_and_nothing_is_left_behind(
    tokenizer: Tokenizer, body: dict[str, Any], parameter: str, words: str
) -> None:
    async with in_process(tokenizer, "a") as served:
        response = await served.post(PATH, **body)
        assert served.llm.num_unfinished == 0
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert words in error["message"]
    assert error["param"] == parameter
