"""Reports C: log-probabilities, of answers and of prompts, echoes and offsets."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from tests.reports.conftest import CONTEXT, PADDING, VOCABULARY
from tests.reports.servers import CHAT, COMPLETIONS, Server, joined, says, text_of
from tests.tolerances import ATOL

BLOCK = 32  # tokens in a cache block
CHUNK = 64  # tokens in a step of the scripted server


def values(positions: list[dict[str, Any] | None]) -> list[dict[str, float]]:
    """Of each position but the first, which has none: token id -> log-probability."""
    assert positions[0] is None
    return [{token: entry["logprob"] for token, entry in position.items()} for position in positions[1:] if position is not None]


def same(first: list[dict[str, float]], second: list[dict[str, float]]) -> bool:
    return [p.keys() for p in first] == [p.keys() for p in second] and first == [pytest.approx(p, abs=ATOL["float32"]) for p in second]


def ids(length: int, seed: int = 0) -> list[int]:
    return [(7919 * (place + 1) + 104_729 * seed) % (VOCABULARY - 300) + 300 for place in range(length)]


@pytest.mark.parametrize("stream", [False, True])
def test_c1_chat_logprobs_have_the_shape_of_chat(numbers: Server, stream: bool) -> None:
    body: dict[str, Any] = {"messages": says("z"), "temperature": 0, "max_tokens": 4, "logprobs": True, "ignore_eos": True}
    if stream:
        pieces = [event["choices"][0].get("logprobs") for event in numbers.stream(CHAT, **body)]
        content = [entry for piece in pieces if piece for entry in piece["content"]]
    else:
        content = numbers.ask(CHAT, **body)["choices"][0]["logprobs"]["content"]
    assert len(content) == 4
    for entry in content:
        assert entry.keys() == {"token", "logprob", "bytes", "top_logprobs"}
        assert bytes(entry["bytes"]).decode(errors="replace") == entry["token"]
        assert entry["logprob"] <= 0
        assert entry["top_logprobs"] == []


@pytest.mark.parametrize("stream", [False, True])
def test_c2_echo_of_ids_and_echo_without_an_answer(scripted: Server, stream: bool) -> None:
    def text(**body: Any) -> str:
        body = {"echo": True, "temperature": 0, **body}
        if stream:
            return joined(scripted.stream(COMPLETIONS, **body))
        return text_of(scripted.ask(COMPLETIONS, **body)["choices"][0])

    assert text(prompt=list(b"say p"), max_tokens=1) == "say pplain"
    assert text(prompt=[1, 2, 3], max_tokens=1).startswith("\x01\x02\x03")
    assert text(prompt="say p", max_tokens=0) == text(prompt=list(b"say p"), max_tokens=0) == "say p"
    assert text(prompt="say p", max_tokens=0, logprobs=1) == "say p"


@pytest.mark.parametrize("prompt", ["\nsay London", "\n\n a 😀 p", "é\n\tp", "the\u4e2d"])
@pytest.mark.parametrize("stream", [False, True])
def test_c3_the_tokens_of_an_echo_are_its_text(numbers: Server, prompt: str, stream: bool) -> None:
    body: dict[str, Any] = {"prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 3, "temperature": 0, "ignore_eos": True}
    if stream:
        choices = [choice for event in numbers.stream(COMPLETIONS, **body) for choice in event["choices"]]
        tokens = [token for choice in choices for token in choice["logprobs"]["tokens"]]
        offsets = [offset for choice in choices for offset in choice["logprobs"]["text_offset"]]
        text = "".join(map(text_of, choices))
    else:
        (choice,) = numbers.ask(COMPLETIONS, **body)["choices"]
        text, tokens, offsets = choice["text"], choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]
    assert "".join(tokens) == text
    assert text.startswith(prompt)
    assert offsets == [len("".join(tokens[:count])) for count in range(len(tokens))]


def test_c4_an_echo_with_logprobs_scores_the_prompt(numbers: Server) -> None:
    answer = numbers.ask(COMPLETIONS, prompt="score all of this", echo=True, logprobs=1, max_tokens=1, temperature=0)
    logprobs = answer["choices"][0]["logprobs"]
    assert len(logprobs["token_logprobs"]) == answer["usage"]["prompt_tokens"] + 1
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert all(value < 0 for value in logprobs["token_logprobs"][1:])
    assert all(len(tops) in (1, 2) for tops in logprobs["top_logprobs"][1:])  # the token itself may be the likeliest


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_c5_a_prompt_can_be_scored_without_an_answer(numbers: Server, path: str) -> None:
    body: dict[str, Any] = {"messages": says("z"), "prompt": "score this", "temperature": 0, "prompt_logprobs": 1}
    before = numbers.metric("generation_tokens_total")
    answer = numbers.ask(path, **body, max_tokens=0)
    (choice,) = answer["choices"]
    assert (text_of(choice), choice["finish_reason"]) == ("", "length")
    assert answer["usage"]["completion_tokens"] == 0
    scored = answer["prompt_logprobs"] if path == CHAT else choice["prompt_logprobs"]
    assert len(scored) == answer["usage"]["prompt_tokens"]
    one = numbers.ask(path, **body, max_tokens=1)
    assert same(values(scored), values(one["prompt_logprobs"] if path == CHAT else one["choices"][0]["prompt_logprobs"]))
    numbers.wait_idle()
    assert numbers.metric("generation_tokens_total") == before + 1  # of the second request


def test_c5_of_several_choices_without_an_answer_each_has_its_end(numbers: Server) -> None:
    body: dict[str, Any] = {"prompt": ids(100, seed=5), "max_tokens": 0, "temperature": 1.0}
    choices = numbers.ask(COMPLETIONS, **body, n=3, prompt_logprobs=1)["choices"]
    assert [(choice["text"], choice["finish_reason"]) for choice in choices] == [("", "length")] * 3
    assert len(choices[0]["prompt_logprobs"]) == 100
    assert numbers.refusal(COMPLETIONS, **body)["param"] == "max_tokens"
    assert numbers.refusal(CHAT, messages=says("z"), max_tokens=0)["param"] == "max_tokens"


def test_c6_logprobs_are_those_of_the_model_whatever_the_sampling(numbers: Server) -> None:
    def first(**body: Any) -> dict[str, float]:
        logprobs = numbers.ask(COMPLETIONS, prompt="the same prompt", logprobs=5, max_tokens=1, seed=1, **body)["choices"][0]["logprobs"]
        own = logprobs["tokens"][0]
        return {token: value for token, value in logprobs["top_logprobs"][0].items() if token != own} | {"": 0.0}

    plain = first(temperature=0.0)
    for sampling in ({"temperature": 0.2}, {"temperature": 1.5}, {"top_p": 0.1}, {"top_k": 1}, {"presence_penalty": 2.0}):
        found = first(**sampling)
        both = plain.keys() & found.keys()
        assert len(both) >= 4
        assert {token: found[token] for token in both} == pytest.approx({token: plain[token] for token in both}, abs=ATOL["float32"])


def test_c7_as_many_alternatives_as_were_asked_for_whatever_their_texts(scripted: Server) -> None:
    """Half of the scripted model's tokens are bytes that are no character by themselves, and have one text: it must not make them one."""
    body: dict[str, Any] = {"temperature": 0, "max_tokens": 3}
    content = scripted.ask(CHAT, messages=says("p"), **body, logprobs=True, top_logprobs=20)["choices"][0]["logprobs"]["content"]
    texts = [[top["token"] for top in entry["top_logprobs"]] for entry in content]
    assert [len(each) for each in texts] == [20, 20, 20]
    assert all(len(set(each)) < 20 for each in texts)
    for count in (1, 5, 20):
        (choice,) = scripted.ask(COMPLETIONS, prompt="say p", **body, logprobs=count)["choices"]
        assert [len(tops) for tops in choice["logprobs"]["top_logprobs"]] == [count] * 3  # what was said is the likeliest
        assert all(own in tops for tops, own in zip(choice["logprobs"]["top_logprobs"], choice["logprobs"]["tokens"], strict=True))


def test_c8_special_and_impossible_tokens_have_finite_scores(scripted: Server, numbers: Server) -> None:
    body: dict[str, Any] = {"messages": says("p"), "temperature": 0, "logprobs": True, "top_logprobs": 2}
    *_, last = scripted.ask(CHAT, **body, skip_special_tokens=False)["choices"][0]["logprobs"]["content"]
    assert (last["token"], len(last["top_logprobs"])) == ("<|end|>", 2)
    assert last["top_logprobs"][0]["token"] == "<|end|>"
    assert all(-10_000 < top["logprob"] <= 0 for top in last["top_logprobs"])
    impossible = [300, VOCABULARY + 1, 301]  # padding of the vocabulary, which nothing but a prompt can hold
    text = numbers.post(COMPLETIONS, prompt=impossible, echo=True, logprobs=2, prompt_logprobs=1, max_tokens=0).text
    (choice,) = json.loads(text, parse_constant=pytest.fail)["choices"]
    assert choice["logprobs"]["token_logprobs"][1] == choice["prompt_logprobs"][1][str(VOCABULARY + 1)]["logprob"] == -9999.0


@pytest.mark.parametrize("length", [BLOCK - 1, BLOCK, BLOCK + 1, CHUNK, CHUNK + 1])
def test_c9_a_prompt_is_scored_again_as_it_was_before_it_was_cached(numbers: Server, length: int) -> None:
    body: dict[str, Any] = {"prompt": ids(length, seed=9), "prompt_logprobs": 1, "temperature": 0, "max_tokens": 2, "ignore_eos": True}
    first, second = (numbers.ask(COMPLETIONS, **body)["choices"][0] for _ in range(2))
    assert len(first["prompt_logprobs"]) == length
    assert same(values(first["prompt_logprobs"]), values(second["prompt_logprobs"]))
    assert first["text"] == second["text"]
    unscored = numbers.ask(COMPLETIONS, **body | {"prompt_logprobs": None})
    assert unscored["choices"][0]["text"] == first["text"]
    assert unscored["usage"]["prompt_tokens_details"]["cached_tokens"] == (length - 1) // BLOCK * BLOCK


def test_c10_a_prompt_in_chunks_is_scored_whole(scripted: Server) -> None:
    prompt = [token % 256 for token in ids(3 * CHUNK + 1, seed=10)]
    (choice,) = scripted.ask(COMPLETIONS, prompt=prompt, prompt_logprobs=1, temperature=0, max_tokens=1)["choices"]
    assert len(choice["prompt_logprobs"]) == len(prompt)
    assert all(str(token) in position for token, position in zip(prompt[1:], choice["prompt_logprobs"][1:], strict=True))
    for length in (5, 100):
        (part,) = scripted.ask(COMPLETIONS, prompt=prompt[:length], prompt_logprobs=1, max_tokens=0)["choices"]
        assert same(values(part["prompt_logprobs"]), values(choice["prompt_logprobs"])[: length - 1])


def test_c10_others_run_while_a_long_prompt_is_scored(scripted: Server) -> None:
    body: dict[str, Any] = {"prompt": "say o", "temperature": 0, "max_tokens": 60}
    alone = scripted.ask(COMPLETIONS, **body)["choices"][0]["text"]
    with ThreadPoolExecutor(4) as threads:
        scoring = threads.submit(scripted.ask, COMPLETIONS, prompt=[97] * (10 * CHUNK), prompt_logprobs=2, max_tokens=0)
        texts = list(threads.map(lambda _: joined(scripted.stream(COMPLETIONS, **body)), range(3)))
    assert len(scoring.result()["choices"][0]["prompt_logprobs"]) == 10 * CHUNK
    assert texts == [alone] * 3


def test_c11_scoring_the_longest_prompt_takes_little_memory(numbers: Server) -> None:
    """All its logits at once would be 80 MB."""
    body: dict[str, Any] = {"prompt": ids(CONTEXT - 1, seed=11), "prompt_logprobs": 20, "max_tokens": 1, "temperature": 0}
    assert CONTEXT * (VOCABULARY + PADDING) * 4 > 80e6
    worker = psutil.Process(numbers.child("worker.process").pid)
    numbers.ask(COMPLETIONS, **body | {"prompt": ids(2 * CHUNK, seed=12)})
    before = worker.memory_info().rss
    (choice,) = numbers.ask(COMPLETIONS, **body)["choices"]
    assert len(choice["prompt_logprobs"]) == CONTEXT - 1
    assert min(map(len, choice["prompt_logprobs"][1:])) >= 20
    assert worker.memory_info().rss - before < 30e6
    assert numbers.lives()


@pytest.mark.parametrize(
    ("path", "body", "parameter"),
    [
        (CHAT, {"logprobs": True, "top_logprobs": 1_000_000}, "top_logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (COMPLETIONS, {"logprobs": 1_000_000}, "logprobs"),
        (COMPLETIONS, {"prompt_logprobs": 1_000_000}, "prompt_logprobs"),
        (CHAT, {"prompt_logprobs": 21}, "prompt_logprobs"),
        (COMPLETIONS, {"logprobs": -2}, "logprobs"),
        (COMPLETIONS, {"logprobs": 2**40}, "logprobs"),
    ],
)
def test_c12_more_logprobs_than_there_are_is_refused(numbers: Server, path: str, body: dict[str, Any], parameter: str) -> None:
    error = numbers.refusal(path, messages=says("z"), prompt="z", **body)
    assert error["param"] == parameter
    if "-" not in error["message"]:
        assert "20" in error["message"]
    assert numbers.lives()
