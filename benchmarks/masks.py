"""What structured outputs cost: a mask of each kind of grammar, and a step in which every row has one beside a step in which none has.

usage: python -m benchmarks.masks MODEL [--backend guidance] [--schemas FOLDER] [--pairs 9] [--rows 64] [--only masks|step]

A mask's cost is told of a request whose grammar is compiled already (mean, most) and of the first one with it. Texts are what a model might
say; of schemas in FOLDER, documents of tokens drawn by chance, the common ones more often.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np

from octavo import LLM, SamplingParams, plugins
from octavo.checkpoint import source
from octavo.config.config import GrammarConfig
from octavo.errors import OctavoError
from octavo.grammar.grammar import grammar_of
from octavo.grammar.vocabulary import SpecialTexts, Vocabulary, special_texts
from octavo.protocol.sampling_params import StructuredOutputsParams
from octavo.text.tokenizer import Tokenizer

LONGEST = 200  # tokens of a document that is drawn by chance
TIMES = 5  # that each text is gone through; of each token the least time counts
STEPS = 8  # decode steps that are compared
PROMPT = 16  # tokens
ENDS = ("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "</s>", "<eos>")

TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}
PERSON = {
    "type": "object",
    "properties": {"name": TEXT, "age": WHOLE, "tags": {"type": "array", "items": TEXT}},
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "mail": {"type": "string", "format": "email"},
        "day": {"type": "string", "format": "date"},
        "kind": {"enum": ["small", "medium", "large"]},
        "key": {"type": "string", "pattern": "^[a-z_]+$"},
    },
    "required": ["name", "mail", "day", "kind", "key"],
    "additionalProperties": False,
}
PEOPLE = {"type": "object", "properties": {"people": {"type": "array", "items": PERSON, "minItems": 40}}, "required": ["people"]}
SELECT = r"""
root ::= "SELECT " names " FROM " name (" WHERE " condition)?
names ::= name (", " name)*
name ::= [a-z_]+
condition ::= name " = " ([0-9]+ | "'" [^']* "'") (" AND " condition)?
"""
SUMS = """
start: sum
sum: product (("+" | "-") product)*
product: factor (("*" | "/") factor)*
factor: NUMBER | "(" sum ")"
NUMBER: /[0-9]+(\\.[0-9]+)?/
"""
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("json: a person", {"json": PERSON}, '{"name": "John Smith", "age": 42, "tags": ["a tag of some words", "another"]}'),
    (
        "json: lengths, formats, patterns",
        {"json": RECORD},
        '{"name": "John Smith", "mail": "john@example.com", "day": "2024-04-12", "kind": "medium", "key": "some_name"}',
    ),
    ("json: any object", {"json_object": True}, '{"name": "John Smith", "age": 42, "tags": ["some tag", {"more": [1, null, "x y"]}]}'),
    ("regex: a date", {"regex": r"\d{4}-\d{2}-\d{2}"}, "2024-05-17"),
    ("regex: a time", {"regex": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"}, "2024-05-17T12:33:10.123Z"),
    ("regex: a mail address", {"regex": r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,10}"}, "john.smith1984@mail.example.com"),
    ("regex: a number", {"regex": r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?"}, "-123456.789e10"),
    ("regex: an id", {"regex": "[a-z0-9]{8}-[a-z0-9]{4}-[a-z0-9]{12}"}, "4f9ac01b-11ff-9ab7aa01f3cc"),
    ("regex: a word", {"regex": r"\w+"}, "HelloWorldThisIsAnIdentifier_42"),
    ("regex: a sentence", {"regex": r"[A-Z][a-z]+( [a-z]+)*\."}, "The quick brown fox jumps over the lazy dog."),
    ("regex: a line, at most 200 long", {"regex": ".{1,200}"}, "The quick brown fox, it jumps over the lazy dog: yes."),
    ("regex: a telephone number", {"regex": r"\+?\d{1,3}[ -]?\(?\d{3}\)?[ -]?\d{3}[ -]?\d{4}"}, "+1 (555) 123-4567"),
    ("regex: an IP address", {"regex": r"((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)"}, "192.168.178.23"),
    ("regex: a web address", {"regex": r"https?://[^\s/$.?#].[^\s]*"}, "https://example.com/some/path?query=1&more=2#here"),
    ("regex: a list of lines", {"regex": r"(- [^\n]+\n){1,5}"}, "- The first thing to do\n- Another thing, see below\n"),
    ("choice", {"choice": ["positive", "negative", "neutral", "not applicable"]}, "not applicable"),
    ("grammar: EBNF", {"grammar": SELECT}, "SELECT name, age FROM people WHERE age = 'forty two' AND town = 'Oslo'"),
    ("grammar: Lark", {"grammar": SUMS}, "12*(3+45.5)-7/(2+1)"),
]


@dataclass
class Costs:
    """Microseconds of each mask."""

    later: list[float]
    first: list[float]
    compile_ms: float


def vocabulary_of(model: str) -> Vocabulary:
    tokenizer = Tokenizer.load(source.resolve(model).path)
    count = len(tokenizer)
    ends = {text: index for index, (text, _) in tokenizer.added_tokens.items()}
    return Vocabulary(
        tokens=[tokenizer.token_bytes(index) for index in range(count)],
        specials={text: index for text, index in special_texts(tokenizer.added_tokens).items() if index < count},
        eos_token_ids=[ends[text] for text in ENDS if text in ends] or [count - 1],
        encode=tokenizer.encode_ordinary,
    )


def follow(matcher: Any, tokens: list[int], words: Any) -> list[float]:
    """Microseconds of the mask before each token."""
    costs = []
    for token in tokens:
        began = time.perf_counter()
        matcher.fill(words)
        costs.append(1e6 * (time.perf_counter() - began))
        if not matcher.accept(token):
            raise SystemExit(f"token {token} is refused")
    return costs


def draw(matcher: Any, vocabulary: Vocabulary, rng: random.Random) -> list[int]:
    """Tokens by chance; the lower a token's id, the more often it comes, as in text."""
    words = np.zeros(vocabulary.words, np.int32)
    tokens: list[int] = []
    while len(tokens) < LONGEST and not matcher.is_complete:
        matcher.fill(words)
        allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[: len(vocabulary.tokens)])
        allowed = allowed[~np.isin(allowed, vocabulary.eos_token_ids)]
        if not len(allowed):
            break
        weights = np.cumsum(1 / (allowed + 100))
        token = int(allowed[np.searchsorted(weights, rng.random() * weights[-1])])
        assert matcher.accept(token)
        tokens.append(token)
    return tokens


def costs_of(backend: Any, vocabulary: Vocabulary, params: dict[str, Any], text: str | None, rng: random.Random) -> Costs:
    began = time.perf_counter()
    grammar = grammar_of(StructuredOutputsParams(**params), GrammarConfig(), SpecialTexts(vocabulary.specials))
    matcher = backend.compile(grammar)
    compile_ms = 1e3 * (time.perf_counter() - began)
    words = np.zeros(vocabulary.words, np.int32)
    tokens = vocabulary.encode(text) if text is not None else draw(backend.compile(grammar), vocabulary, rng)
    first = follow(matcher.copy(), tokens, words)
    later = [follow(matcher.copy(), tokens, words) for _ in range(TIMES)]
    return Costs([min(times) for times in zip(*later)], first, compile_ms)


def tell_masks(model: str, backend_name: str, folder: Path | None) -> None:
    vocabulary = vocabulary_of(model)
    began = time.perf_counter()
    backend = plugins.load("grammar.backends", backend_name).Backend(vocabulary)
    print(f"{backend_name}, {len(vocabulary.tokens):,} tokens; its tables took {time.perf_counter() - began:.1f} s\n")
    print("| grammar | tokens | compiled in ms | us a mask: mean | most | first request |\n|---|---|---|---|---|---|")
    cases: list[tuple[str, dict[str, Any], str | None]] = list(CASES)
    for path in sorted(folder.glob("*.json")) if folder else []:
        cases.append((f"schema: {path.stem}", {"json": json.loads(path.read_text())}, None))
    means, all_later, refused = [], [], 0
    rng = random.Random(0)
    for name, params, text in cases:
        try:
            costs = costs_of(backend, vocabulary, params, text, rng)
        except OctavoError as error:
            print(f"| {name} | refused: {str(error).splitlines()[0][:90]} |")
            refused += 1
            continue
        if not costs.later:
            continue
        means.append(statistics.mean(costs.later))
        all_later += costs.later
        print(
            f"| {name} | {len(costs.later)} | {costs.compile_ms:.1f} | {means[-1]:.0f} | {max(costs.later):.0f} "
            f"| {statistics.mean(costs.first):.0f} |"
        )
    print(f"\nmean of the {len(means)} grammars' means: {statistics.mean(means):.0f} us a mask; of all {len(all_later)} masks:")
    print(f"{statistics.mean(all_later):.0f} us; {refused} refused")


def tell_steps(model: str, rows: int, pairs: int, backend_name: str) -> None:
    """Seconds of a decode step of so many rows, free and constrained, in turn."""
    llm = LLM(
        model=model,
        dtype="bfloat16",
        max_num_seqs=rows,
        max_model_len=512,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=1 << 29,
        structured_outputs_config={"backend": backend_name},
        disable_log_stats=False,
    )
    rng = random.Random(1)
    prompts: list[Any] = [{"prompt_token_ids": [rng.randrange(1000, 40000) for _ in range(PROMPT)]} for _ in range(rows)]

    def step_ms(is_constrained: bool) -> float:
        """From the first token of all rows to their last."""
        asked = StructuredOutputsParams(json=PEOPLE) if is_constrained else None
        params = SamplingParams(temperature=1.0, seed=1, max_tokens=STEPS + 1, ignore_eos=True, detokenize=False, structured_outputs=asked)
        outputs = llm.generate(prompts, params, use_tqdm=False)
        assert all(len(output.outputs[0].token_ids) == STEPS + 1 for output in outputs)
        metrics = [output.metrics for output in outputs if output.metrics is not None]
        first = max(each.first_token_time or 0.0 for each in metrics)
        return 1e3 * (max(each.last_token_time or 0.0 for each in metrics) - first) / STEPS

    step_ms(True)
    step_ms(False)
    ratios = []
    for index in range(pairs):
        free, bound = (step_ms(False), step_ms(True)) if index % 2 == 0 else reversed((step_ms(True), step_ms(False)))
        ratios.append(bound / free)
        print(f"pair {index + 1}: {free:.1f} ms free, {bound:.1f} ms constrained: {100 * (ratios[-1] - 1):+.1f} %", flush=True)
    print(f"{rows} constrained rows slow a step by {100 * (statistics.median(ratios) - 1):.1f} % (median of {pairs} pairs)")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--backend", default="guidance")
    parser.add_argument("--schemas", type=Path, help="a folder of JSON schemas")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--only", choices=("masks", "step"))
    args = parser.parse_args()
    if args.only != "step":
        tell_masks(args.model, args.backend, args.schemas)
    if args.only != "masks":
        tell_steps(args.model, args.rows, args.pairs, args.backend)
    return 0


if __name__ == "__main__":
    sys.exit(main())
