"""The recorded answers of canitoolcall as pieces, and octavo's parser as what it tests.

The vocabularies are not here, only the ids of their special tokens. So a special token's text is its own, and the text between two of
them is dealt out evenly, byte by byte, to as many tokens as there were: characters are torn as real tokens tear them.
"""

import codecs
import itertools
from collections.abc import Sequence
from functools import cache

from canitoolcall.fixtures import Fixture
from canitoolcall.pytest_plugin import family_for
from canitoolcall.results import ParseResult, StreamAccumulator

from octavo.parsing.events import Arguments, Content, Event, Piece, Reasoning, Tool, ToolCall
from octavo.parsing.machine import open_parser

_DEEPSEEK_V3 = {
    128806: "<｜tool▁calls▁begin｜>",
    128807: "<｜tool▁calls▁end｜>",
    128808: "<｜tool▁call▁begin｜>",
    128809: "<｜tool▁call▁end｜>",
    128814: "<｜tool▁sep｜>",
}
_GLM = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
)
_KIMI_K2 = {
    163595: "<|tool_calls_section_begin|>",
    163596: "<|tool_calls_section_end|>",
    163597: "<|tool_call_begin|>",
    163598: "<|tool_call_argument_begin|>",
    163599: "<|tool_call_end|>",
    163606: "<think>",
    163607: "</think>",
}
_QWEN3 = {151657: "<tool_call>", 151658: "</tool_call>", 151667: "<think>", 151668: "</think>"}
_TEKKEN = {9: "[TOOL_CALLS]", 32: "[ARGS]", 33: "[CALL_ID]"}

# tokenizer: its special tokens, tool format, reasoning format
MODELS: dict[str, tuple[dict[int, str], str, str | None]] = {
    "DeepSeek-V3-0324": (_DEEPSEEK_V3, "deepseek_v3", "deepseek_v3"),
    "DeepSeek-V3.1": (_DEEPSEEK_V3, "deepseek_v31", "deepseek_v3"),
    "DeepSeek-V3.2": ({128793: "｜DSML｜", 128799: "</think>"}, "deepseek_v32", "deepseek_v3"),
    "DeepSeek-V4-Flash": ({128822: "</think>", 128825: "｜DSML｜"}, "deepseek_v4", "deepseek_v3"),
    "DeepSeek-V4.1-Flash": ({128822: "</think>", 128825: "｜DSML｜"}, "deepseek_v41", "deepseek_v3"),
    "gemma-4-31B-it": (
        {48: "<|tool_call>", 49: "<tool_call|>", 52: '<|"|>', 100: "<|channel>", 101: "<channel|>"},
        "gemma4",
        "gemma4",
    ),
    "GLM-4.5": (dict(enumerate(_GLM, 151350)), "glm45", "glm45"),
    "GLM-4.7": (dict(enumerate(_GLM, 151350)), "glm47", "glm45"),
    "GLM-5.3": (dict(enumerate(_GLM, 154841)), "glm47", "glm45"),
    "gpt-oss-20b": (
        {
            200003: "<|constrain|>",
            200005: "<|channel|>",
            200006: "<|start|>",
            200007: "<|end|>",
            200008: "<|message|>",
            200012: "<|call|>",
        },
        "openai",
        "openai_gptoss",
    ),
    "Kimi-K2-Instruct-0905": (_KIMI_K2, "kimi_k2", None),
    "Kimi-K2.6": (_KIMI_K2, "kimi_k2", "kimi_k2"),
    "Kimi-K3": ({163587: "<|open|>", 163588: "<|close|>", 163589: "<|sep|>"}, "kimi_k3", "kimi_k3"),
    "Llama-3.3-70B-Instruct": (
        {128006: "<|start_header_id|>", 128007: "<|end_header_id|>", 128010: "<|python_tag|>"},
        "llama3_json",
        None,
    ),
    "Llama-4-Scout-17B-16E-Instruct": ({200016: "<|python_start|>", 200017: "<|python_end|>"}, "llama4_pythonic", None),
    "Mistral-7B-Instruct-v0.3": ({5: "[TOOL_CALLS]"}, "mistral", "mistral"),
    "Mistral-Small-3.2-24B-Instruct-2506": (_TEKKEN, "mistral", "mistral"),
    "Magistral-Small-2509": (_TEKKEN | {34: "[THINK]", 35: "[/THINK]"}, "mistral", "mistral"),
    "Magistral-Small-2506": (_TEKKEN, "mistral", "mistral"),
    "Ministral-3-14B-Reasoning-2512": (_TEKKEN | {34: "[THINK]", 35: "[/THINK]"}, "mistral", "mistral"),
    "Devstral-Small-2507": (_TEKKEN, "mistral", "mistral"),
    "Ministral-3-14B-Instruct-2512": (_TEKKEN | {34: "[THINK]", 35: "[/THINK]"}, "mistral", "mistral"),
    "Qwen3-0.6B": (_QWEN3, "hermes", "qwen3"),
    "Qwen3-4B-Thinking-2507": (_QWEN3, "hermes", "qwen3"),
    "Qwen3-4B-Instruct-2507": (_QWEN3, "hermes", "qwen3"),
    "Qwen3.5-9B": ({248058: "<tool_call>", 248059: "</tool_call>", 248068: "<think>", 248069: "</think>"}, "qwen3_coder", "qwen3"),
    "Qwen3.8-27B": ({248058: "<tool_call>", 248059: "</tool_call>", 248068: "<think>", 248069: "</think>"}, "qwen3_coder", "qwen3"),
    "Qwen3-Coder-30B-A3B-Instruct": ({151657: "<tool_call>", 151658: "</tool_call>"}, "qwen3_coder", None),
    "Qwen3-Coder-Next": ({151657: "<tool_call>", 151658: "</tool_call>"}, "qwen3_coder", None),
}


def model_of(fixture: Fixture) -> tuple[dict[int, str], str, str | None]:
    assert fixture.tokenizer is not None
    return MODELS[fixture.tokenizer.repo.rpartition("/")[2]]


def pieces_of(fixture: Fixture) -> list[Piece]:
    """One piece for each recorded token."""
    special = model_of(fixture)[0]
    assert fixture.output_token_ids is not None
    runs = _split(fixture.output_token_ids, special)
    texts = _align(fixture.raw_output, [(len(run), special.get(run[0], "")) for run in runs])
    pieces: list[Piece] = []
    for run, text in zip(runs, texts):
        if run[0] in special:
            pieces.append(Piece(text, run[0], is_special=True))
        else:
            pieces += map(Piece, _dealt(text, len(run)), run)
    assert "".join(piece.text for piece in pieces) == fixture.raw_output
    return pieces


def _split(ids: Sequence[int], special: dict[int, str]) -> list[list[int]]:
    """Special tokens alone, and the ordinary ones between them together."""
    runs: list[list[int]] = []
    for token_id in ids:
        if runs and token_id not in special and runs[-1][0] not in special:
            runs[-1].append(token_id)
        else:
            runs.append([token_id])
    return runs


def _align(text: str, runs: Sequence[tuple[int, str]]) -> list[str]:
    """The text of each run: special ones have their own, the others what is between, at least a byte for each token."""

    @cache
    def rest(index: int, at: int) -> tuple[float, tuple[str, ...]] | None:
        """The likeliest texts of the runs from this one on (all tokens about as long), and how unlikely they are."""
        if index == len(runs):
            return (0.0, ()) if at == len(text) else None
        num_tokens, spelling = runs[index]
        if spelling:
            found = rest(index + 1, at + len(spelling)) if text.startswith(spelling, at) else None
            return (found[0], (spelling, *found[1])) if found else None
        best = None
        following = runs[index + 1][1] if index + 1 < len(runs) else None
        end = at
        while end >= 0:
            end = text.find(following, end + 1) if following else len(text) if end == at else -1
            num_bytes = len(text[at:end].encode()) if end >= 0 else 0
            if num_bytes >= num_tokens and (found := rest(index + 1, end)):
                cost = found[0] + abs(num_bytes / num_tokens - 4) * num_tokens
                if best is None or cost < best[0]:
                    best = (cost, (text[at:end], *found[1]))
        return best

    found = rest(0, 0)
    assert found is not None
    return list(found[1])


def _dealt(text: str, num_tokens: int) -> list[str]:
    """A text in so many pieces, cut between bytes; a torn character comes with its last byte."""
    data = text.encode()
    decoder = codecs.getincrementaldecoder("utf-8")()
    cuts = [len(data) * index // num_tokens for index in range(num_tokens + 1)]
    return [decoder.decode(data[start:end]) for start, end in itertools.pairwise(cuts)]


def in_characters(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Special tokens whole, all other text character by character."""
    return [[part] for piece in pieces for part in ([piece] if piece.is_special else map(Piece, piece.text))]


def parse(fixture: Fixture, groups: Sequence[Sequence[Piece]]) -> ParseResult:
    """What a client gets that adds the deltas up."""
    special, tool_format, reasoning_format = model_of(fixture)
    family = family_for(fixture)
    reference = family.reference_for(fixture.models[0]) if family else None
    prompt_end = (
        fixture.generation_prompt if fixture.generation_prompt is not None else reference.default_generation_prompt if reference else ""
    )
    by_spelling = {spelling: token_id for token_id, spelling in special.items()}
    parser = open_parser(
        tool_format=tool_format,
        reasoning_format=reasoning_format,
        tools=[Tool(tool["function"]["name"], tool["function"].get("parameters") or {}) for tool in fixture.tools],
        markers=by_spelling.get,
        prompt_end=prompt_end or "",
    )
    events: list[Event] = []
    for group in groups:
        events += parser.feed(group)
    return as_result([*events, *parser.finish(cut_off=fixture.truncated)])


def as_result(events: Sequence[Event]) -> ParseResult:
    sums = StreamAccumulator()
    for event in events:
        if isinstance(event, Content):
            sums.add_content(event.text)
        elif isinstance(event, Reasoning):
            sums.add_reasoning(event.text)
        elif isinstance(event, ToolCall):
            sums.add_tool_call(event.index, name=event.name)
        elif isinstance(event, Arguments):
            sums.add_tool_call(event.index, arguments=event.text)
    return sums.result()
