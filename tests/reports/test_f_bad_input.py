"""Reports of kind F: no request, however wrong, stops or misleads the server. It is refused by its field, and the next one is answered."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
import pytest

from tests.reports.conftest import PADDING, VOCABULARY
from tests.reports.servers import CHAT, COMPLETIONS, Server, joined, says, text_of
from tests.reports.servers2 import polled

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
MESSAGES = says("p")


def refused(server: Server, path: str, body: dict[str, Any], parameter: str | None = None) -> dict[str, Any]:
    """The error of a request that is refused with a text, whole and as a stream, before anything is sent."""
    for stream in (False, True):
        response = server.post(path, **{"stream": stream, **body})
        assert response.status_code == 400, (body, response.text)
        error: dict[str, Any] = response.json()["error"]
        assert error["message"]
        assert (error["type"], error["code"]) == ("BadRequestError", 400)
        assert parameter in (None, error["param"]), (body, error)
    return error


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "json_schema", "schema": {}},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": None},
        {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
        {"type": "nonsense"},
        {},
        "json",
        [],
    ],
    ids=json.dumps,
)
def test_f1_a_response_format_of_the_wrong_shape_is_refused_by_name(scripted: Server, wrong: Any) -> None:
    refused(scripted, CHAT, {"messages": MESSAGES, "response_format": wrong}, "response_format")
    assert scripted.lives()


WRONG_BODIES: list[tuple[str, dict[str, Any]]] = [
    *(
        (CHAT, {"messages": wrong})
        for wrong in (
            [],
            {},
            "x",
            None,
            [None],
            ["x"],
            [[]],
            [{}],
            [{"role": "user", "content": 5}],
            [{"role": 5, "content": "x"}],
            [{"role": "user", "content": [5]}],
            [{"role": "user", "content": [{}]}],
            [{"role": "user", "content": [{"type": "text"}]}],
            [{"role": "user", "content": [{"type": "text", "text": 5}]}],
            [{"role": "user", "content": [{"type": "image_url", "image_url": 5}]}],
            [{"role": "user", "content": {"type": "text", "text": "x"}}],
        )
    ),
    (CHAT, {"messages": [{"role": "assistant", "tool_calls": "x"}]}),
    (CHAT, {"messages": [{"role": "assistant", "tool_calls": [{"function": 5}]}]}),
    *((COMPLETIONS, {"prompt": wrong}) for wrong in ([[]], "", [], [""], {}, 5, True, [None], [1.5], [["x"]], [1, "x"], None, {"a": 1})),
    (COMPLETIONS, {}),
    (CHAT, {}),
    ("/tokenize", {"prompt": 5}),
    ("/tokenize", {"messages": []}),
    ("/tokenize", {}),
    ("/detokenize", {"tokens": [-1]}),
    ("/detokenize", {"tokens": ["x"]}),
    ("/detokenize", {"tokens": [2**70]}),
    ("/detokenize", {}),
]


@pytest.mark.parametrize(("path", "body"), WRONG_BODIES, ids=[f"{path} {json.dumps(body)}" for path, body in WRONG_BODIES])
def test_f2_shapes_that_fuzzing_finds_are_refused(scripted: Server, path: str, body: dict[str, Any]) -> None:
    for extra in ({}, {"stream": True}):
        response = scripted.post(path, **body, **extra)
        assert 400 <= response.status_code < 500, response.text
        error = response.json()["error"]
        assert error["message"]
        assert error["code"] == response.status_code
    assert scripted.lives()


OUT_OF_RANGE: list[tuple[str, Any]] = [
    *(("temperature", wrong) for wrong in (-0.1, 2.1, "x", True, [])),
    *(("top_p", wrong) for wrong in (0, -1, 1.01, "x")),
    *(("top_k", wrong) for wrong in (-2, 1.5, "x")),
    *(("min_p", wrong) for wrong in (-0.1, 1.1)),
    *(("presence_penalty", wrong) for wrong in (-2.1, 2.1)),
    *(("frequency_penalty", wrong) for wrong in (-2.1, 2.1)),
    *(("repetition_penalty", wrong) for wrong in (0, -1, "x")),
    *(("n", wrong) for wrong in (0, -1, 1.5, "2")),
    *(("max_tokens", wrong) for wrong in (-1, 1.5, "x")),
    *(("min_tokens", wrong) for wrong in (-1, 1000)),
    *(("seed", wrong) for wrong in ("x", 1.5, 2**70)),
    *(("stop", wrong) for wrong in ([""], [5], 5, {})),
    *(("stop_token_ids", wrong) for wrong in ([-1], ["x"], 5, [2**40])),
    *(("logit_bias", wrong) for wrong in ({"x": 1}, {"-1": 1}, {str(10**9): 1}, {"1": "x"}, [])),
    *(("allowed_token_ids", wrong) for wrong in ([], [-1], [10**9])),
    *(("bad_words", wrong) for wrong in ([""], [5])),
    *(("logprob_token_ids", wrong) for wrong in ([-1], [10**9])),
    *(("truncate_prompt_tokens", wrong) for wrong in (0, -2, 10**6)),
    *(("prompt_logprobs", wrong) for wrong in (-2, 10**6)),
    *(("priority", wrong) for wrong in (1, "x", 2**70)),
    *(("cache_salt", wrong) for wrong in ("", 5)),
    *(("use_beam_search", wrong) for wrong in ("x", 5)),
]


@pytest.mark.parametrize(("field", "wrong"), OUT_OF_RANGE, ids=[f"{field} {json.dumps(wrong)}" for field, wrong in OUT_OF_RANGE])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_f3_every_field_out_of_its_range_is_named(scripted: Server, path: str, field: str, wrong: Any) -> None:
    prompt = {"messages": MESSAGES} if path == CHAT else {"prompt": "say p"}
    error = refused(scripted, path, {"max_tokens": 4, **prompt, field: wrong}, field)
    assert field in error["message"]


@pytest.mark.parametrize(
    "field",
    [
        {"structured_outputs": {"grammar": "Root ::= x"}},
        {"structured_outputs": {"grammar": "root ::= " + "(" * 60_000}},
        {"structured_outputs": {"regex": "(" * 60_000}},
        {"guided_grammar": "root ::= " + "(" * 60_000},
    ],
    ids=["missing rule", "deep grammar", "deep regex", "deep guided_grammar"],
)
def test_f5_a_bad_or_very_deep_grammar_is_refused_at_once(scripted: Server, field: dict[str, Any]) -> None:
    start = time.monotonic()
    refused(scripted, CHAT, {"messages": MESSAGES, **field}, next(iter(field)))
    assert time.monotonic() - start < 2  # both of its requests
    assert scripted.lives()


@pytest.mark.parametrize("pattern", [r"^a\!$", "(", "[", "(?<=x)y", "a{3,1}"])
def test_f6_a_pattern_that_cannot_be_kept_is_never_ignored(scripted: Server, pattern: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    given: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    refused(scripted, CHAT, {"messages": MESSAGES, "response_format": given}, "response_format")
    refused(scripted, COMPLETIONS, {"prompt": "say p", "structured_outputs": {"regex": pattern}}, "structured_outputs")


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    "body",
    [b"{:", b"", b"[]", b"null", b"5", b'"x"', b"\xff\xfe{}", b"[" * 10_000_000, b'{"messages": ' + b'{"a":' * 100_000, b"{}" * 3, b"\0"],
    ids=["{:", "empty", "[]", "null", "number", "text", "no utf-8", "10 MB of [", "deep", "two", "nul"],
)
def test_f7_what_is_no_json_object_is_refused(scripted: Server, path: str, body: bytes) -> None:
    response = scripted.raw(path, body)
    assert response.status_code in (400, 413)
    assert response.json()["error"]["message"]
    assert scripted.lives()


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 4, 5])
def test_f8_an_answer_that_ends_in_a_torn_character_is_valid_json(scripted: Server, max_tokens: int) -> None:
    torn = ["a ", "a \ufffd", "a \ufffd", "a \ufffd", "a 😀"][max_tokens - 1]
    for path, prompt in ((CHAT, {"messages": says("e")}), (COMPLETIONS, {"prompt": "say e"})):
        body = {**prompt, "max_tokens": max_tokens, "temperature": 0, "logprobs": True if path == CHAT else 1}
        assert text_of(scripted.ask(path, **body)["choices"][0]) == torn
        assert joined(scripted.stream(path, **body)) == torn


@pytest.mark.parametrize("stream", [False, True])
def test_f9_two_requests_of_one_id_are_two_requests(scripted: Server, stream: bool) -> None:
    def ask(number: int) -> str:
        headers = {"x-request-id": "one"} if number % 2 else {}
        body = {"request_id": "one", "messages": says("p"), "temperature": 0, "stream": stream}
        response = httpx.post(scripted.url + CHAT, json=body, headers=headers, timeout=60)
        assert response.status_code == 200
        if number % 2:
            assert response.headers["x-request-id"] == "one"
        assert '"chatcmpl-one"' in response.text
        if not stream:
            return text_of(response.json()["choices"][0])
        assert response.text.endswith("data: [DONE]\n\n")
        return joined([json.loads(line.removeprefix("data: ")) for line in response.text.split("\n\n")[:-2]])

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(8))) == {"plain words, no more"}
    scripted.wait_idle()
    assert scripted.lives()


def test_f10_what_is_huge_or_outside_the_vocabulary_is_refused_before_it_is_copied(numbers: Server) -> None:
    numbers.ask(COMPLETIONS, prompt="x", max_tokens=1)
    processes = [psutil.Process(numbers.process.pid), *numbers.children]
    before = sum(process.memory_info().rss for process in processes)
    size = VOCABULARY + PADDING
    start = time.monotonic()
    for field in ({"n": 5_000_000, "temperature": 1}, {"n": 2**62}, *({"use_beam_search": True, "n": n} for n in (0, -1, 5_000_000))):
        refused(numbers, COMPLETIONS, {"prompt": "x", **field}, "n")
    for ids in ([size], [-1], [2**31], [2**64], [1, 2, size + 5]):
        refused(numbers, COMPLETIONS, {"prompt": ids}, "prompt")
        refused(numbers, COMPLETIONS, {"prompt": [[1, 2], ids]}, "prompt")
    assert time.monotonic() - start < 10
    after = sum(process.memory_info().rss for process in processes)
    assert after - before < 64 << 20
    assert numbers.lives()


def test_f11_the_text_of_a_tool_s_description_changes_nothing(scripted: Server) -> None:
    found = set()
    for description in ("", 'a "quote"', "back\\slash \\d+ [a-z]{2,} (?:x)*", "::= | root", "\u0000\n\t", "🙂" * 1000):
        tool = {"type": "function", "function": {"name": "f", "description": description, "parameters": SCHEMA}}
        response = scripted.post(CHAT, messages=MESSAGES, tools=[tool], temperature=0)
        assert response.status_code < 500
        answer = response.json()
        found.add(json.dumps(answer["error"] if "error" in answer else answer["choices"]))
    assert len(found) == 1
    assert scripted.lives()


def test_f12_unknown_fields_are_let_through_and_named_in_a_header(scripted: Server) -> None:
    messages = [{"role": "user", "content": "say p", "name": "me", "unknown_in_message": {"a": [1]}}]
    extra = {"metadata": {"a": "b"}, "store": False, "user": "u", "unknown_to_all": [1, {"b": None}], "service_tier": "auto"}
    for path, prompt in ((CHAT, {"messages": messages}), (COMPLETIONS, {"prompt": "say p"})):
        response = scripted.post(path, **prompt, **extra, temperature=0)
        assert response.status_code == 200
        assert text_of(response.json()["choices"][0]) == "plain words, no more"
        assert "unknown_to_all" in response.headers["x-ignored-fields"].split(", ")
        assert joined(scripted.stream(path, **prompt, **extra, temperature=0)) == "plain words, no more"


async def test_f13_health_is_answered_while_a_prompt_of_5_mb_is_read(scripted: Server) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * (5_000_000 // 45)
    async with httpx.AsyncClient(base_url=scripted.url, timeout=120) as http, polled(scripted, 0.05) as health:
        for path, body in ((COMPLETIONS, {"prompt": text}), (CHAT, {"messages": [{"role": "user", "content": text}]})):
            answer = await http.post(path, json=body)
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestError")
    assert health.longest_gap_s < 0.5
    too_large = scripted.raw(COMPLETIONS, b'{"prompt": "' + b"x" * (33 << 20) + b'"}')
    assert too_large.status_code == 413
    assert scripted.lives()


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_f14_null_is_as_good_as_absent(scripted: Server, path: str) -> None:
    prompt: dict[str, Any] = {"messages": MESSAGES} if path == CHAT else {"prompt": "say p"}
    names = [
        "stop",
        "logit_bias",
        "seed",
        "n",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "stream",
        "stream_options",
        "logprobs",
        "user",
    ]
    names += ["presence_penalty", "frequency_penalty", "response_format", "stop_token_ids", "bad_words", "min_tokens", "echo", "ignore_eos"]
    names += ["tools", "tool_choice", "top_logprobs", "max_completion_tokens", "metadata", "suffix", "best_of", "priority", "cache_salt"]
    for body in (dict.fromkeys(names), *({name: None} for name in names)):
        answer = scripted.ask(path, **prompt, **{"temperature": 0, **body}, allowed_token_ids=None)
        if "temperature" not in body:
            assert text_of(answer["choices"][0]) == "plain words, no more"
