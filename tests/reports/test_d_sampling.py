"""Reports D: sampling parameters: what they do, and what is refused."""

import json
from typing import Any

import pytest

from tests.reports.conftest import VOCABULARY
from tests.reports.servers import CHAT, COMPLETIONS, END, STOP, TOKENS, Server, says, text_of

WORD, SPACED = TOKENS["London"], TOKENS[" London"]
THE = TOKENS["the"]


def choice_of(server: Server, prompt: Any = "a prompt", **body: Any) -> dict[str, Any]:
    """The one answer of a completion, with its token ids."""
    fields = {"temperature": 0, "max_tokens": 20, "return_token_ids": True, **body}
    (choice,) = server.ask(COMPLETIONS, prompt=prompt, **fields)["choices"]
    return dict(choice)


def tokens_of(server: Server, prompt: Any = "a prompt", **body: Any) -> list[int]:
    return list(choice_of(server, prompt, **body)["token_ids"])


@pytest.mark.parametrize("end", [END, STOP])
def test_d1_min_tokens_holds_back_every_end_token(numbers: Server, end: int) -> None:
    bias = {str(end): 100.0}
    assert len(tokens_of(numbers, logit_bias=bias)) == 1
    answer = choice_of(numbers, logit_bias=bias, min_tokens=5)
    assert answer["token_ids"][5:] == [end]
    assert not {END, STOP} & set(answer["token_ids"][:5])
    assert answer["finish_reason"] == "stop"


def test_d2_min_tokens_counts_the_answer_alone(numbers: Server) -> None:
    prompt = list(range(300, 340))
    tokens = tokens_of(numbers, prompt, logit_bias={str(END): 100.0}, min_tokens=7)
    assert tokens.index(END) == 7


def test_d2_ignore_eos_leaves_the_last_token_of_the_vocabulary_alone(numbers: Server) -> None:
    last = VOCABULARY - 1
    assert tokens_of(numbers, logit_bias={str(last): 100.0}, ignore_eos=True, max_tokens=4) == [last] * 4


@pytest.mark.parametrize("end", [END, STOP])
def test_d3_ignore_eos_ignores_every_end_token_and_no_stop_token(numbers: Server, end: int) -> None:
    body: dict[str, Any] = {"logit_bias": {str(end): 100.0}, "ignore_eos": True, "max_tokens": 20}
    answer = choice_of(numbers, **body)
    assert (answer["token_ids"], answer["finish_reason"]) == ([end] * 20, "length")
    answer = choice_of(numbers, **body, stop_token_ids=[end])
    assert (answer["token_ids"], answer["finish_reason"], answer["stop_reason"]) == ([end], "stop", end)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("bias", [{"999999": 5}, {"-1": 5}, {"abc": 5}, {str(VOCABULARY): 5}, {"5": "much"}, {"": 1}, {"1.5": 1}, [5]])
def test_d4_a_bias_of_what_is_no_token_is_refused(numbers: Server, path: str, bias: Any) -> None:
    error = numbers.refusal(path, messages=says("z"), prompt="z", logit_bias=bias)
    assert error["param"] == "logit_bias"
    assert numbers.lives()


def test_d5_a_bad_word_is_kept_away_with_and_without_a_space_before_it(numbers: Server) -> None:
    bias = {str(WORD): 100.0, str(SPACED): 80.0}
    assert set(tokens_of(numbers, logit_bias=bias, max_tokens=4)) == {WORD}
    assert set(tokens_of(numbers, logit_bias={str(SPACED): 100.0}, max_tokens=4)) == {SPACED}
    answer = choice_of(numbers, logit_bias=bias, bad_words=["London"], max_tokens=8, ignore_eos=True)
    assert not {WORD, SPACED} & set(answer["token_ids"])
    assert "London" not in answer["text"]


def test_d5_a_bad_word_of_several_tokens_is_kept_away(numbers: Server) -> None:
    bias = {str(ord("x")): 100.0}
    assert choice_of(numbers, logit_bias=bias, max_tokens=4)["text"] == "xxxx"
    assert "xx" not in choice_of(numbers, logit_bias=bias, max_tokens=6, bad_words=["xx"], ignore_eos=True)["text"]


@pytest.mark.parametrize("words", [["\u0001"], ["London", "\u0001"], [""], ["x", ""], [5]])
def test_d6_a_bad_word_of_no_tokens_is_refused(numbers: Server, words: list[Any]) -> None:
    assert numbers.refusal(COMPLETIONS, prompt="z", bad_words=words)["param"] == "bad_words"
    assert numbers.lives()


def test_d7_a_bad_word_is_found_though_prompts_begin_with_a_token_of_their_own(numbers: Server) -> None:
    assert numbers.ask(COMPLETIONS, prompt="the", max_tokens=1)["usage"]["prompt_tokens"] == 2
    bias = {str(THE): 100.0}
    assert set(tokens_of(numbers, logit_bias=bias, max_tokens=4)) == {THE}
    assert THE not in tokens_of(numbers, logit_bias=bias, max_tokens=4, bad_words=["the"], ignore_eos=True)


def test_d8_penalties_are_the_same_from_the_cache(numbers: Server) -> None:
    prompt = "what was said before is said again, " * 4
    near = dict.fromkeys((str(ord(letter)) for letter in "whatsidxyz"), 20.0)  # some of them are in the prompt
    body: dict[str, Any] = {"repetition_penalty": 1.5, "max_tokens": 16, "ignore_eos": True, "logit_bias": near}
    first = tokens_of(numbers, prompt, **body)
    assert [tokens_of(numbers, prompt, **body) for _ in range(2)] == [first] * 2
    again = numbers.ask(COMPLETIONS, prompt=prompt, temperature=0, **body)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 32
    uncached = numbers.ask(COMPLETIONS, prompt=prompt, temperature=0, return_token_ids=True, cache_salt="nobody's", **body)
    assert uncached["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert uncached["choices"][0]["token_ids"] == first
    assert tokens_of(numbers, prompt, **body | {"repetition_penalty": 1.0}) != first


def test_d9_presence_and_frequency_leave_the_prompt_alone_and_repetition_does_not(numbers: Server) -> None:
    """Two tokens are lifted far above all others, the one of the prompt by half a logit more than the other."""
    x, y = 300, 301
    body: dict[str, Any] = {"prompt": [x] * 4, "max_tokens": 2, "ignore_eos": True}
    values = []
    for token in (x, y):
        logprobs = choice_of(numbers, **body | {"max_tokens": 1}, logprobs=0, logprob_token_ids=[token], return_tokens_as_token_ids=True)
        values.append(logprobs["logprobs"]["top_logprobs"][0][f"token_id:{token}"])
    bias = {str(x): 50.5 - values[0], str(y): 50.0 - values[1]}
    assert tokens_of(numbers, **body, logit_bias=bias)[0] == x
    assert tokens_of(numbers, **body, logit_bias=bias, presence_penalty=2.0)[0] == x
    assert tokens_of(numbers, **body, logit_bias=bias, frequency_penalty=2.0)[0] == x
    assert tokens_of(numbers, **body, logit_bias=bias, presence_penalty=-2.0)[0] == x
    assert tokens_of(numbers, **body, logit_bias=bias, repetition_penalty=1.5)[0] == y
    # what was said is penalised: after x the other one is likelier than it was
    said = tokens_of(numbers, **body | {"max_tokens": 6}, logit_bias=bias, presence_penalty=2.0, frequency_penalty=2.0)
    assert {x, y} == set(said)


@pytest.mark.parametrize("temperature", [1e-4, 1e-6, 1e-9, 5e-324, 0.0])
def test_d10_a_tiny_temperature_is_greedy(numbers: Server, temperature: float) -> None:
    greedy = choice_of(numbers, max_tokens=12, ignore_eos=True)
    tiny = choice_of(numbers, max_tokens=12, ignore_eos=True, temperature=temperature, seed=3)
    assert tiny["token_ids"] == greedy["token_ids"]
    assert tiny["text"] == greedy["text"] != ""


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"])
def test_d11_what_is_no_number_is_refused(numbers: Server, path: str, name: str, number: str) -> None:
    body = json.dumps({"messages": says("z"), "prompt": "z", "max_tokens": 1})[:-1] + f', "{name}": {number}}}'
    response = numbers.raw(path, body.encode())
    assert response.status_code == 400
    assert response.json()["error"]["param"] == name


def test_d11_a_bias_that_is_no_number_is_refused(numbers: Server) -> None:
    for number in ("NaN", "Infinity", "1e400"):
        response = numbers.raw(COMPLETIONS, b'{"prompt": "z", "logit_bias": {"5": ' + number.encode() + b"}}")
        assert (response.status_code, response.json()["error"]["param"]) == (400, "logit_bias")
    assert numbers.lives()


@pytest.mark.parametrize(
    "sampling", [{"temperature": 0}, {"temperature": 2.0, "n": 8, "seed": 1}, {"temperature": 2.0, "top_k": 5, "seed": 2}]
)
def test_d12_ids_beyond_the_tokenizer_are_never_said(numbers: Server, sampling: dict[str, Any]) -> None:
    """The head's rows beyond the tokenizer have the largest logits by far."""
    body = {"prompt": "hello", "max_tokens": 40, "ignore_eos": True, "return_token_ids": True, "logprobs": 20}
    for choice in numbers.ask(COMPLETIONS, **body | sampling)["choices"]:
        assert max(choice["token_ids"]) < VOCABULARY
        assert all(choice["logprobs"]["tokens"])
        assert min(len(tops) for tops in choice["logprobs"]["top_logprobs"]) >= 20
    for name, value in (("stop_token_ids", [VOCABULARY]), ("allowed_token_ids", [VOCABULARY]), ("logprob_token_ids", [VOCABULARY])):
        assert numbers.refusal(COMPLETIONS, prompt="z", **{name: value})["param"] == name


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("name", "value"), [("stop_token_ids", [None]), ("stop", [None]), ("stop", [""]), ("stop", ""), ("stop_token_ids", [2**40])]
)
def test_d13_what_cannot_stop_anything_is_refused(numbers: Server, path: str, name: str, value: Any) -> None:
    assert numbers.refusal(path, messages=says("z"), prompt="z", **{name: value})["param"] == name
    assert numbers.lives()


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_d14_top_p_of_zero_is_never_one(numbers: Server, path: str) -> None:
    """vLLM's rule: refused."""
    assert numbers.refusal(path, messages=says("z"), prompt="z", top_p=0)["param"] == "top_p"
    assert numbers.refusal(path, messages=says("z"), prompt="z", top_p=0.0)["param"] == "top_p"
    least = {"temperature": 2.0, "seed": 5, "max_tokens": 8, "ignore_eos": True, "messages": says("z"), "prompt": "z"}
    greedy = numbers.ask(path, **least | {"temperature": 0})
    assert text_of(numbers.ask(path, **least, top_p=1e-9)["choices"][0]) == text_of(greedy["choices"][0])


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("value", [0.5, "5", True, -2, [1], 2.0])
def test_d15_top_k_is_a_count(numbers: Server, path: str, value: Any) -> None:
    assert numbers.refusal(path, messages=says("z"), prompt="z", top_k=value)["param"] == "top_k"


def test_d15_a_top_k_beyond_the_vocabulary_is_all_of_it(numbers: Server) -> None:
    body: dict[str, Any] = {"temperature": 1.0, "seed": 4, "max_tokens": 6, "ignore_eos": True}
    expected = tokens_of(numbers, **body)
    assert [tokens_of(numbers, **body, top_k=value) for value in (0, -1, VOCABULARY, 2**30)] == [expected] * 4
    for name in ("top_k", "min_tokens", "stream_interval"):
        error = numbers.refusal(COMPLETIONS, prompt="z", **{name: 2**63})
        assert (error["param"], numbers.lives()) == (name, True)
