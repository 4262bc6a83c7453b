"""Mutants: valid request bodies with something wrong in them: types, ranges, nesting, spelling, bytes, and how they are sent.

A mutant is made of its number alone, so that a failure can be made again.
"""

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required": ["a"]}
_TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": _SCHEMA, "strict": False}}
_CALLED = {"name": "look", "arguments": '{"a": 1}'}
# endpoint -> bodies that it answers with 200
SEEDS: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [
        {"model": "scripted", "messages": [{"role": "user", "content": "say p"}], "temperature": 0, "max_tokens": 8},
        {
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "say t"}]},
                {"role": "assistant", "content": "a"},
                {"role": "user", "content": "say p", "name": "n"},
            ],
            "stream": True,
            "stream_options": {"include_usage": True},
            "logprobs": True,
            "top_logprobs": 3,
            "seed": 4,
            "stop": ["</s>", "never"],
            "logit_bias": {"42": 1.5},
            "n": 2,
            "max_completion_tokens": 6,
            "user": "u",
        },
        {
            "messages": [{"role": "user", "content": "say x"}],
            "min_p": 0.1,
            "top_k": 5,
            "top_p": 0.9,
            "presence_penalty": 0.5,
            "frequency_penalty": -0.5,
            "repetition_penalty": 1.1,
            "bad_words": ["zz"],
            "allowed_token_ids": [65, 66, 67, 256],
            "stop_token_ids": [66],
            "min_tokens": 1,
            "max_tokens": 5,
            "chat_template_kwargs": {"a": 1},
            "cache_salt": "s",
            "priority": 0,
            "echo": True,
            "continue_final_message": False,
            "return_token_ids": True,
        },
        {
            "messages": [
                {"role": "user", "content": "say x"},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": _CALLED}]},
                {"role": "tool", "tool_call_id": "c", "content": "say p"},
            ],
            "tools": [_TOOL],
            "tool_choice": "none",
            "parallel_tool_calls": False,
            "include_reasoning": False,
            "reasoning_effort": "low",
            "response_format": {"type": "text"},
            "max_tokens": 4,
        },
        {
            "messages": [{"role": "user", "content": "say p"}],
            "tools": [_TOOL, {"type": "function", "function": {"name": "now", "strict": True}}],
            "tool_choice": {"type": "function", "function": {"name": "now"}},
            "max_tokens": 4,
        },
        {
            "messages": [{"role": "user", "content": "say p"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": _SCHEMA}},
            "max_tokens": 3,
        },
    ],
    "/v1/completions": [
        {"prompt": "say p", "structured_outputs": {"choice": ["plain", "words"], "disable_any_whitespace": True}, "max_tokens": 3},
        {"model": "scripted", "prompt": "say p", "max_tokens": 8, "temperature": 0},
        {"prompt": ["say p", "say t"], "max_tokens": 4, "n": 2, "stream": True, "stream_options": {"include_usage": True}, "logprobs": 2},
        {"prompt": [115, 97, 121, 112], "max_tokens": 3, "echo": True, "logprobs": 1, "prompt_logprobs": 1, "ignore_eos": True, "seed": 1},
        {"prompt": [[115, 97], [112]], "max_tokens": 2, "use_beam_search": True, "n": 2, "length_penalty": 1.2},
    ],
    "/v1/chat/completions/batch": [
        {"messages": [[{"role": "user", "content": "say p"}], [{"role": "user", "content": "say t"}]], "temperature": 0, "max_tokens": 4},
    ],
    "/tokenize": [
        {"model": "scripted", "prompt": "say p", "add_special_tokens": True, "return_token_strs": True},
        {"messages": [{"role": "user", "content": "say p"}], "add_generation_prompt": True},
    ],
    "/detokenize": [{"model": "scripted", "tokens": [115, 97, 121]}],
    "/invocations": [{"prompt": "say p", "max_tokens": 2}, {"messages": [{"role": "user", "content": "say p"}], "max_tokens": 2}],
}

# what stands for anything; Raw is written as it is, JSON or not
ODD_TEXTS = (
    "",
    " ",
    "x",
    "0",
    "-1",
    "true",
    "null",
    "NaN",
    "\0",
    "\u202e\u2066",
    "é\u0301" * 50,
    "😀👩\u200d💻",
    "\ufffd\ufeff",
    "<|end|>",
    "{{ 7*7 }}",
)
ODD_NUMBERS = (0, -0.0, 1, -1, 2, 0.5, 1e-320, 1e308, -1e308, 127, 255, 256, 65_536, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1)
SHAPES: tuple[Any, ...] = ([], {}, [None], [[]], {"": None}, [1, "a", None], {"type": "text"}, {"a": {"b": []}})
ODD_HUGE = (2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**40, -(10**400))


@dataclass(frozen=True)
class Raw:
    """Written into the JSON as it stands."""

    text: str


RAWS = tuple(
    Raw(text) for text in ("NaN", "Infinity", "-Infinity", "1e999", "01", "+1", ".5", "1.", '"\\ud800"', '"\\x"', "'a'", "undefined", "tru")
)


@dataclass
class Mutant:
    """Bytes for an endpoint. wire: sent over a bare socket as they are, head and all; cut: whether the client then hangs up."""

    number: int
    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    wire: bytes | None = None
    cut: bool = False
    what: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"mutant {self.number} ({', '.join(self.what)}): {self.path} {(self.wire or self.body)[:600]!r}"


def make(number: int, fields: dict[str, list[str]]) -> Mutant:
    """The mutant of that number. fields: of every endpoint that there is the names that it knows."""
    rng = random.Random(number)
    path = rng.choice([*sorted(fields), "/v1/chat/completions", "/v1/completions"])
    tree: Any = copy.deepcopy(rng.choice(SEEDS[path]))
    what = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 6))):
        change = rng.choice(CHANGES)
        what.append(change.__name__)
        tree = change(tree, rng, fields.get(path, []))
    mutant = Mutant(number, path, write(tree, rng, repeats=rng.random() < 0.1).encode("utf-8", "surrogatepass"), what=what)
    if rng.random() < 0.25:
        change_bytes = rng.choice(BYTE_CHANGES)
        mutant.what.append(change_bytes.__name__)
        mutant.body = change_bytes(mutant.body, rng)
    if rng.random() < 0.25:
        change_sending = rng.choice(SENDINGS)
        mutant.what.append(change_sending.__name__)
        change_sending(mutant, rng)
    return mutant


def write(tree: Any, rng: random.Random, repeats: bool) -> str:
    """JSON, also of what JSON has no words for; repeats: some keys stand twice, with other values."""
    if isinstance(tree, Raw):
        return tree.text
    if isinstance(tree, dict):
        pairs = [f"{json.dumps(str(key))}: {write(value, rng, repeats)}" for key, value in tree.items()]
        if repeats and pairs:
            pairs.append(f"{json.dumps(str(rng.choice(list(tree))))}: {write(odd(rng), rng, False)}")
        return "{" + ", ".join(pairs) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(write(value, rng, repeats) for value in tree) + "]"
    return json.dumps(tree, ensure_ascii=rng.random() < 0.5)


def odd_texts() -> list[str]:
    """Odd values as JSON, none of them large."""
    values = (*ODD_NUMBERS, *ODD_HUGE, *ODD_TEXTS, None, True, False, *SHAPES)
    return [*(json.dumps(value) for value in values), *(raw.text for raw in RAWS)]


def odd(rng: random.Random) -> Any:
    """A value that is seldom right."""
    kind = rng.randrange(10)
    if kind < 3:
        return rng.choice(ODD_NUMBERS)
    if kind == 3:
        return rng.choice(ODD_HUGE)
    if kind < 6:
        return rng.choice(ODD_TEXTS)
    if kind == 6:
        return rng.choice(RAWS)
    if kind == 7:
        return rng.choice((None, True, False))
    if kind == 8:
        return copy.deepcopy(rng.choice(SHAPES))
    return rng.choice((_deep, _long_text, _long_list, _wide))(rng)


def _deep(rng: random.Random) -> Any:
    depth = rng.choice((20, 150, 3000))
    return Raw("[" * depth + "]" * depth) if rng.random() < 0.5 else Raw('{"a":' * depth + "1" + "}" * depth)


def _long_text(rng: random.Random) -> Any:
    return rng.choice(("a", "é", "😀", "\n", "[user]")) * rng.choice((300, 5_000, 60_000))


def _long_list(rng: random.Random) -> Any:
    return [rng.choice(ODD_NUMBERS)] * rng.choice((40, 5_000))


def _wide(rng: random.Random) -> Any:
    return {f"k{number}": number for number in range(rng.choice((100, 3_000)))}


# --- changes of the tree


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value."""
    found, todo = [], [tree]
    while todo:
        each = todo.pop()
        if isinstance(each, (dict, list)):
            keys = list(each) if isinstance(each, dict) else range(len(each))
            for key in keys:
                found.append((each, key))
                todo.append(each[key])
    return found


def replace(tree: Any, rng: random.Random, fields: list[str]) -> Any:
    if not (places := _places(tree)):
        return odd(rng)
    container, key = rng.choice(places)
    container[key] = odd(rng)
    return tree


def set_field(tree: Any, rng: random.Random, fields: list[str]) -> Any:
    """One of all the fields that the endpoint knows."""
    if isinstance(tree, dict) and fields:
        tree[rng.choice(fields)] = odd(rng)
    return tree


def drop(tree: Any, rng: random.Random, fields: list[str]) -> Any:
    if places := _places(tree):
        container, key = rng.choice(places)
        del container[key]
    return tree


def wrap(tree: Any, rng: random.Random, fields: list[str]) -> Any:
    if not (places := _places(tree)):
        return [tree]
    container, key = rng.choice(places)
    container[key] = rng.choice((lambda v: [v], lambda v: {"x": v}, lambda v: [v, v], lambda v: [[v]]))(container[key])
    return tree


def repeat(tree: Any, rng: random.Random, fields: list[str]) -> Any:
    lists = [container for container, _ in _places(tree) if isinstance(container, list)]
    if lists:
        chosen = rng.choice(lists)
        chosen[:] = (chosen * rng.choice((2, 5, 20)))[:60]
    return tree


def rename(tree: Any, rng: random.Random, fields: list[str]) -> Any:
    keyed = [(container, key) for container, key in _places(tree) if isinstance(container, dict)]
    if keyed:
        container, key = rng.choice(keyed)
        name = str(key)
        container[rng.choice((name.upper(), name + " ", "__class__", "", name.replace("o", "о"), name * 200))] = container.pop(key)
    return tree


def stringify(tree: Any, rng: random.Random, fields: list[str]) -> Any:
    """5 -> "5", and the other way round."""
    if places := _places(tree):
        container, key = rng.choice(places)
        value = container[key]
        container[key] = len(value) if isinstance(value, str) else str(value)
    return tree


def nudge(tree: Any, rng: random.Random, fields: list[str]) -> Any:
    """A number beyond its neighbour."""
    numbers = [(c, k) for c, k in _places(tree) if isinstance(c[k], (int, float)) and not isinstance(c[k], bool) and abs(c[k]) < 1e300]
    if numbers:
        container, key = rng.choice(numbers)
        container[key] = rng.choice(
            (-container[key], container[key] * 1000, container[key] + 0.5, container[key] - 1, container[key] * 1e30)
        )
    return tree


CHANGES: tuple[Callable[[Any, random.Random, list[str]], Any], ...] = (
    replace, replace, replace, set_field, set_field, set_field, drop, wrap, repeat, rename, stringify, nudge,
)  # fmt: skip


# --- changes of the bytes


def truncate(body: bytes, rng: random.Random) -> bytes:
    return body[: rng.randrange(len(body) + 1)]


def flip(body: bytes, rng: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.choice((1, 3, 20))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def insert(body: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(body) + 1)
    return (
        body[:place]
        + rng.choice((b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\0", b"\xef\xbb\xbf", b"}", b'"', b"//x\n", b"\\"))
        + body[place:]
    )


def surround(body: bytes, rng: random.Random) -> bytes:
    before, after = rng.choice(((b"\xef\xbb\xbf", b""), (b"", b"{}"), (b"[", b"]"), (b" \n\t" * 1000, b""), (b"", b"\0"), (b'"', b'"')))
    return before + body + after


def recode(body: bytes, rng: random.Random) -> bytes:
    return body.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-32-le", "latin-1", "utf-7")), "replace")


def empty(body: bytes, rng: random.Random) -> bytes:
    return rng.choice((b"", b" ", b"null", b"0", b"[]", b'""', b"{}"))


BYTE_CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (truncate, flip, insert, surround, recode, empty)


# --- ways of sending


def other_headers(mutant: Mutant, rng: random.Random) -> None:
    mutant.headers = rng.choice(
        (
            {},
            {"content-type": "text/plain"},
            {"content-type": "application/json; charset=utf-16"},
            {"content-type": "multipart/form-data; boundary=x"},
            {"content-type": "application/json", "content-encoding": "gzip"},
            {"content-type": "application/json", "x-request-id": "a" * 3000},
            {"content-type": "application/json", "x-request-id": "\u00ff\u00fe"},
            {"content-type": "application/json", "authorization": "Bearer"},
            {"content-type": "application/json", "accept": "x/y;q=z"},
            {"content-type": "application/json", "traceparent": "00-zz-zz-01"},
            {"content-type": "application/json", "x-data-parallel-rank": "-1"},
        )
    )


def _head(mutant: Mutant, *lines: bytes) -> bytes:
    return b"\r\n".join([b"POST " + mutant.path.encode() + b" HTTP/1.1", b"host: x", *lines, b"", b""])


def torn(mutant: Mutant, rng: random.Random) -> None:
    """Hang up somewhere in the request."""
    whole = _head(mutant, b"content-length: %d" % len(mutant.body)) + mutant.body
    mutant.wire, mutant.cut = whole[: rng.randrange(len(whole) + 1)], True


def left_early(mutant: Mutant, rng: random.Random) -> None:
    """Hang up before the answer."""
    mutant.wire, mutant.cut = _head(mutant, b"content-length: %d" % len(mutant.body)) + mutant.body, True


def wrong_length(mutant: Mutant, rng: random.Random) -> None:
    length = rng.choice((b"-1", b"x", b"1e3", b"99999999999999999999", b"%d" % (len(mutant.body) // 2), b"0", b""))
    mutant.wire, mutant.cut = _head(mutant, b"content-length: " + length) + mutant.body, True


def chunked(mutant: Mutant, rng: random.Random) -> None:
    size = rng.choice((b"%x" % len(mutant.body), b"%x" % (len(mutant.body) // 2), b"zz", b"-5", b"ffffffffffffffffff", b""))
    mutant.wire = _head(mutant, b"transfer-encoding: chunked") + size + b"\r\n" + mutant.body + b"\r\n0\r\n\r\n"
    mutant.cut = True


def no_http(mutant: Mutant, rng: random.Random) -> None:
    mutant.wire = rng.choice(
        (
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"GET / HTTP/9.9\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"POST " + mutant.path.encode() + b"\r\n\r\n",
            b"\0" * 100,
            b"GET http://[::1 HTTP/1.1\r\nhost: \xff\r\n\r\n",
            _head(mutant, b"content-length: 2", b"content-length: 3") + b"{}",
            _head(mutant, b"transfer-encoding: chunked", b"content-length: 5") + b"0\r\n\r\n",
            _head(mutant, *[b"x%d: y" % number for number in range(400)]),
            _head(mutant, b"x: " + b"y" * 100_000),
            b"POST " + mutant.path.encode() + b"/../%2e%2e%00?" + b"a=" * 500 + b" HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
        )
    )
    mutant.cut = True


SENDINGS: tuple[Callable[[Mutant, random.Random], None], ...] = (other_headers, torn, left_early, wrong_length, chunked, no_http)
