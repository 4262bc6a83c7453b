"""Reports A: the text of a stream, and where stop strings end it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatFields
from openai.types.completion_create_params import CompletionCreateParamsBase as TextFields
from tokenizers import Regex, Tokenizer, decoders, models, normalizers

from octavo import LLM, SamplingParams
from octavo.errors import RequestError
from tests.reports.servers import CHAT, COMPLETIONS, SMALL, Server, joined, parse_events, reasons, says, serving, text_of
from tests.script_model import write

TORN = "\ufffd"
TEXTS = {"e": "a 😀 b 𠜎 c", "j": "👩\u200d💻"}


def whole(server: Server, key: str, **body: Any) -> tuple[str, str]:
    """Text and finish_reason of a chat answer."""
    (choice,) = server.ask(CHAT, messages=says(key), temperature=0, **body)["choices"]
    return text_of(choice), choice["finish_reason"]


def pieces(server: Server, key: str, **body: Any) -> list[str]:
    """The non-empty texts of a streamed chat answer, chunk by chunk; no chunk but the first and the last may be empty."""
    events = server.stream(CHAT, messages=says(key), temperature=0, **body)
    texts = [text_of(event["choices"][0]) for event in events]
    assert texts[0] == texts[-1] == ""
    assert all(texts[1:-1])
    assert reasons(events) == [whole(server, key, **body)[1]]
    return texts[1:-1]


@pytest.mark.parametrize("key", TEXTS)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a1_characters_split_over_tokens_are_never_torn(scripted: Server, path: str, key: str) -> None:
    body: dict[str, Any] = {"messages": says(key), "prompt": f"say {key}", "temperature": 0}
    events = scripted.stream(path, **body)
    assert not any(TORN in text_of(event["choices"][0]) for event in events)
    assert joined(events) == text_of(scripted.ask(path, **body)["choices"][0]) == TEXTS[key]


def test_a2_bytes_that_are_never_a_character_break_nothing(scripted: Server) -> None:
    # one-shot decoding: each byte that belongs to no character is one replacement sign
    expected = b"x\xe2word\x80 y".decode(errors="replace")
    assert whole(scripted, "v") == (expected, "stop")
    assert "".join(pieces(scripted, "v")) == expected
    assert scripted.lives()


def test_a3_half_of_a_stop_string_is_never_sent(scripted: Server) -> None:
    assert "".join(pieces(scripted, "d", stop="DEFGHIJ")) == "ABC"
    assert whole(scripted, "d", stop="DEFGHIJ") == ("ABC", "stop")


CUTS = {"two three": "one ", "o th": "one tw", "ee four": "one two thr", "our": "one two three f"}  # stop string: what is left


@pytest.mark.parametrize(("stop", "text"), CUTS.items())
@pytest.mark.parametrize("include", [False, True])
def test_a4_a_stop_string_over_several_tokens_is_the_same_in_a_stream(scripted: Server, stop: str, text: str, include: bool) -> None:
    body = {"stop": [stop], "include_stop_str_in_output": include}
    expected = text + (stop if include else "")
    assert whole(scripted, "s", **body) == (expected, "stop")
    assert "".join(pieces(scripted, "s", **body)) == expected


def test_a5_a_long_stop_string_delays_no_text(scripted: Server) -> None:
    body: dict[str, Any] = {"stop": ["<" + "x" * 200 + ">"], "max_tokens": 100, "return_token_ids": True}
    events = scripted.stream(CHAT, messages=says("o"), temperature=0, **body)
    told = [(text_of(choice), len(choice["token_ids"])) for event in events[1:-1] for choice in event["choices"]]
    assert sum(count for _, count in told) == 100
    assert len(told) > 1
    assert all(text.count(" ") == count > 0 for text, count in told)  # each chunk has the text of all its tokens


def test_a7_a_marker_that_is_one_token_is_never_split(scripted: Server) -> None:
    for stop in ("b,c", ">bc", "k>x", "think!"):
        told = pieces(scripted, "m", stop=[stop])
        assert "".join(told) == "in a<think>b,d</think>out"
        assert [sum(text.count(marker) for text in told) for marker in ("<think>", "</think>")] == [1, 1]


def test_a8_stop_strings_are_never_ignored_in_silence(scripted: Server, scripted_model: Path) -> None:
    (choice,) = scripted.ask(COMPLETIONS, prompt="say d", temperature=0, stop="EFG", return_token_ids=True)["choices"]
    assert (choice["text"], choice["finish_reason"], len(choice["token_ids"])) == ("ABCD", "stop", 2)
    assert whole(scripted, "d", stop="EFG", return_tokens_as_token_ids=True, logprobs=True) == ("ABCD", "stop")
    with pytest.raises(RequestError, match="stop"):
        SamplingParams(stop="x", detokenize=False)
    options: dict[str, Any] = {"skip_tokenizer_init": True, "dtype": "float32", "kv_cache_memory_bytes": 2**20, "max_num_seqs": 1}
    with LLM(str(scripted_model), **options) as llm, pytest.raises(RequestError, match="stop: strings need a tokenizer"):
        llm.generate([1, 2, 3], SamplingParams(stop="x"), use_tqdm=False)


def test_a9_sixty_four_streams_lose_no_token(numbers: Server) -> None:
    body: dict[str, Any] = {"prompt": "The same words for everyone", "temperature": 0, "max_tokens": 24}
    expected = numbers.ask(COMPLETIONS, **body)["choices"][0]["text"]
    assert len(expected) > 24
    with ThreadPoolExecutor(64) as threads:
        texts = list(threads.map(lambda _: joined(numbers.stream(COMPLETIONS, **body)), range(64)))
    assert texts == [expected] * 64


def test_a10_no_leading_space_is_lost_with_a_sentencepiece_tokenizer(tmp_path: Path) -> None:
    said = write(tmp_path, {"a": [" ", " a", " b"], "b": [" one", " two"], "c": ["d", " ", " ", "e "]})
    known = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"<|end|>": 256}
    spelled = ["▁", "▁a", "▁b", "▁one", "▁two", "d", "▁", "▁", "e▁"]
    known |= {piece if piece != "▁" or index == 0 else f"▁{index}": 257 + index for index, piece in enumerate(spelled)}
    tokenizer = Tokenizer(models.BPE(known, [], byte_fallback=True, unk_token="<0x00>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(Regex("▁[0-9]*"), " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with serving(tmp_path, *SMALL) as server:
        for key, ids in said.items():
            body: dict[str, Any] = {"prompt": f"say {key}", "temperature": 0}
            text = joined(server.stream(COMPLETIONS, **body))
            assert text == server.ask(COMPLETIONS, **body)["choices"][0]["text"]
            before = tokenizer.encode(f"say {key}").ids  # the answer does not begin the text
            assert tokenizer.decode(before) + text == tokenizer.decode(before + ids)
        assert text == "d  e "


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [False, True])
def test_a11_both_endpoints_cut_before_the_stop_string(scripted: Server, path: str, stream: bool) -> None:
    body: dict[str, Any] = {"messages": says("s"), "prompt": "say s", "temperature": 0, "stop": ["three"], "max_tokens": 50}
    if stream:
        events = scripted.stream(path, **body)
        assert (joined(events), reasons(events)) == ("one two ", ["stop"])
    else:
        (choice,) = scripted.ask(path, **body)["choices"]
        assert (text_of(choice), choice["finish_reason"]) == ("one two ", "stop")


# --- A12: OpenAI's fields, each with a value that must show: field -> (what else the request has, the value)
NEAR = dict.fromkeys(map(str, range(300, 303)), 60.0)  # some tokens that are about as likely as each other, and all others are not
SHOWN: dict[str, tuple[dict[str, Any], Any]] = {
    "frequency_penalty": ({"logit_bias": NEAR}, 2.0),
    "presence_penalty": ({"logit_bias": NEAR}, 2.0),
    "logit_bias": ({}, {"300": 100}),
    "logprobs": ({}, True),
    "top_logprobs": ({"logprobs": True}, 2),
    "max_completion_tokens": ({}, 2),
    "max_tokens": ({}, 2),
    "n": ({"temperature": 1.0}, 2),
    "seed": ({"temperature": 1.0}, 6),
    "stop": ({}, " "),
    "stream": ({}, True),
    "stream_options": ({"stream": True}, {"include_usage": True}),
    "temperature": ({}, 2.0),
    "top_p": ({"temperature": 2.0}, 0.001),
    "echo": ({}, True),
    "response_format": ({}, {"type": "json_object"}),
}
REFUSED: dict[str, Any] = {
    "audio": {"voice": "alloy", "format": "wav"},
    "best_of": 2,
    "function_call": {"name": "f"},
    "functions": [{"name": "f"}],
    "modalities": ["audio"],
    "suffix": "x",
    "tool_choice": "required",
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "web_search_options": {},
}
# what a client tells of itself, or of how fast or at what price it wants to be served: no answer could show it
TOLD = {"metadata", "moderation", "parallel_tool_calls", "prediction", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"}
TOLD |= {"safety_identifier", "service_tier", "store", "user"}
VALUES = {"parallel_tool_calls": False, "reasoning_effort": "low"}
TEMPLATE_S = {"reasoning_effort", "verbosity"}  # a chat template may read them; this model's does not


def seen(server: Server, path: str, **body: Any) -> Any:
    """All that an answer shows, but its name, its time and where a stream happened to be cut."""
    response = server.post(path, **{"messages": says("z"), "prompt": "z", "temperature": 0, "seed": 5, "max_tokens": 8} | body)
    assert response.status_code == 200, response.text
    if body.get("stream"):
        events = parse_events(response.text)[:-1]
        told = [choice for event in events for choice in event["choices"]]
        text = "".join(choice["text"] if "text" in choice else choice["delta"].get("content") or "" for choice in told)
        return text, [choice["finish_reason"] for choice in told if choice["finish_reason"]], any(not event["choices"] for event in events)
    return response.json()["choices"]


@pytest.mark.parametrize(("path", "fields"), [(CHAT, ChatFields), (COMPLETIONS, TextFields)])
def test_a12_every_field_of_openai_s_shows_or_is_refused_by_name(numbers: Server, path: str, fields: type[Any]) -> None:
    names = fields.__annotations__.keys() - {"model", "messages", "prompt"}
    assert names <= SHOWN.keys() | REFUSED.keys() | TOLD | TEMPLATE_S
    assert numbers.post(path, messages=says("z"), prompt="z", model="another").status_code == 404
    for name in sorted(names & SHOWN.keys()):
        beside, value = SHOWN[name]
        value = 3 if (path, name) == (COMPLETIONS, "logprobs") else value
        without = seen(numbers, path, **beside)
        assert without == seen(numbers, path, **beside) != seen(numbers, path, **beside | {name: value}), name
    for name in sorted(names & REFUSED.keys()):
        assert numbers.refusal(path, messages=says("z"), prompt="z", **{name: REFUSED[name]})["param"] == name
    for name in sorted(names & (TOLD | TEMPLATE_S)):
        assert seen(numbers, path, **{name: VALUES.get(name, "x")}) == seen(numbers, path)


def test_a13_what_is_held_back_is_told_when_the_model_ends(scripted: Server) -> None:
    stop = ["TRE\nAAAAAAAA"]
    assert "".join(pieces(scripted, "u", stop=stop)) == "UNO DUE TRE"
    assert "".join(pieces(scripted, "u", stop=stop, max_tokens=4)) == "UNO DUE TRE"
    assert "".join(pieces(scripted, "u", stop=stop, max_tokens=3)) == "UNO DUE T"
    assert whole(scripted, "u", stop=stop, max_tokens=3) == ("UNO DUE T", "length")
