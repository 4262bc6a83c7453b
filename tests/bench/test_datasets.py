"""Datasets: lengths are exact on the server's side, seeds decide, files that are wrong are refused with a reason."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors

from octavo import plugins
from octavo.bench.options import DATASETS, DatasetOptions, ServeOptions
from octavo.bench.sample import draw
from octavo.bench.words import Words, lengths, ranges
from octavo.errors import ConfigError
from octavo.text.source import TokenizerSource
from octavo.text.tokenizer import Tokenizer


def options(**changes: Any) -> ServeOptions:
    return ServeOptions(**({"num_prompts": 20} | changes))


def write_lines(file: Path, lines: list[Any]) -> str:
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return str(file)


@pytest.fixture
def clumsy() -> Tokenizer:
    """Letters, pairs that grow together, and a bos: texts of a length have to be mended here."""
    letters = {letter: i for i, letter in enumerate("abcdefgh")} | {"<s>": 8}
    pairs = {a + b: 9 + i for i, (a, b) in enumerate((a, b) for a in "abcdefgh" for b in "abcd" if a != b)}
    backend = Backend(models.BPE(letters | pairs, [(p[0], p[1]) for p in pairs]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.add_special_tokens(["<s>"])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 8)])
    return Tokenizer(TokenizerSource(backend, {"bos_token": "<s>"}))


def test_every_dataset_that_is_offered_is_a_file() -> None:
    assert plugins.names("bench.datasets") == sorted(DATASETS)


def test_random_lengths_are_exact(tokenizer: Tokenizer) -> None:
    samples = draw(options(random_input_len=30, random_output_len=9, random_prefix_len=5), tokenizer)
    assert len(samples) == 20
    assert {len(tokenizer.encode(s.prompt)) for s in samples} == {35}
    assert {(s.num_prompt, s.num_output) for s in samples} == {(35, 9)}
    assert len({tuple(tokenizer.encode(s.prompt)[:5]) for s in samples}) == 1
    assert len({s.prompt for s in samples}) == 20


def test_random_lengths_are_exact_where_tokens_grow_together(clumsy: Tokenizer) -> None:
    samples = draw(options(random_input_len=25), clumsy)
    assert [len(clumsy.encode(s.prompt)) for s in samples] == [25] * 20
    assert Words(clumsy).num_added == 1


def test_random_lengths_of_the_small_model(smollm2: Path) -> None:
    real = Tokenizer.load(smollm2)
    samples = draw(options(random_input_len=200, random_prefix_len=56, random_range_ratio="0.5"), real)
    assert [len(real.encode(s.prompt)) for s in samples] == [s.num_prompt for s in samples]
    assert len({s.num_prompt for s in samples}) > 10
    assert all(156 <= s.num_prompt <= 356 for s in samples)


def test_ranges_of_random_lengths(tokenizer: Tokenizer) -> None:
    ratio = '{"input": 0.5, "output": 0.1}'
    samples = draw(options(num_prompts=400, random_input_len=10, random_output_len=10, random_range_ratio=ratio), tokenizer)
    assert {s.num_prompt for s in samples} == set(range(5, 16))
    assert {s.num_output for s in samples} == {9, 10, 11}
    assert ranges("0.25") == (0.25, 0.25)
    assert min(lengths(np.random.default_rng(0), 1, 0.9, 100)) == 1
    for wrong in ("1", "-0.1", "x", '{"input": 1}', "[1]"):
        with pytest.raises(ConfigError, match="range-ratio"):
            ranges(wrong)


def test_the_seed_decides(tokenizer: Tokenizer) -> None:
    one, again, other = (draw(options(random_input_len=12, seed=seed), tokenizer) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_lengths_for_any_dataset(tokenizer: Tokenizer) -> None:
    (sample, *_) = draw(options(input_len=17, output_len=3), tokenizer)
    assert (sample.num_prompt, sample.num_output) == (17, 3)


def test_prefix_repetition(tokenizer: Tokenizer) -> None:
    changes = {"prefix_repetition_prefix_len": 12, "prefix_repetition_suffix_len": 6, "prefix_repetition_num_prefixes": 4}
    samples = draw(options(dataset_name="prefix_repetition", prefix_repetition_output_len=5, num_prompts=22, **changes), tokenizer)
    ids = [tuple(tokenizer.encode(s.prompt)) for s in samples]
    assert {len(i) for i in ids} == {18}
    assert Counter(Counter(i[:12] for i in ids).values()) == {5: 4}  # 22 // 4 of each
    assert len(set(ids)) == 20
    assert {s.num_output for s in samples} == {5}
    with pytest.raises(ConfigError, match="go round"):
        draw(options(dataset_name="prefix_repetition", num_prompts=3), tokenizer)


def test_timed_trace(tokenizer: Tokenizer, tmp_path: Path) -> None:
    trace = [
        {"timestamp": 3000, "input_length": 7, "output_length": 2, "hash_ids": [1, 3]},
        {"timestamp": 1000, "input_length": 10, "output_length": 4, "hash_ids": [1, 2]},
        {"timestamp": 9000, "input_length": 9, "output_length": 4},
        {"timestamp": 99_000, "input_length": 9, "output_length": 4},
    ]
    path = write_lines(tmp_path / "trace.jsonl", trace)
    changes = {"timed_trace_sec_multiplier": 0.001, "timed_trace_chunk_hash_size": 4, "num_prompts": 3}
    samples = draw(options(dataset_name="timed_trace", dataset_path=path, **changes), tokenizer)
    assert [s.at_s for s in samples] == [0.0, 2.0, 8.0]
    assert [len(tokenizer.encode(s.prompt)) for s in samples] == [10, 7, 9]
    assert [s.num_output for s in samples] == [4, 2, 4]
    first, second = (tokenizer.encode(s.prompt) for s in samples[:2])
    assert first[:4] == second[:4]  # hash id 1
    assert first[4:7] != second[4:7]  # 2 and 3
    with pytest.raises(ConfigError, match="timed-trace-label"):
        draw(options(dataset_name="timed_trace", dataset_path=path, timed_trace_label_timestamp="when"), tokenizer)


def test_sharegpt(tokenizer: Tokenizer, tmp_path: Path) -> None:
    turns = [
        ("question one", "answer"),
        ("q", "too short a question"),
        ("long " * 300, "an answer"),
        ("question two", "answers"),
        ("alone",),
    ]
    file = tmp_path / "share.json"
    file.write_text(json.dumps([{"conversations": [{"from": "x", "value": t} for t in each]} for each in turns]))
    changes: dict[str, Any] = {"dataset_name": "sharegpt", "dataset_path": str(file), "num_prompts": 5}
    samples = draw(options(**changes), tokenizer)
    assert {(s.prompt, s.num_prompt, s.num_output) for s in samples} == {("question one", 12, 6), ("question two", 12, 7)}
    assert len(samples) == 5
    assert len(draw(options(**changes, oversample=False), tokenizer)) == 2
    assert {s.num_output for s in draw(options(**changes, sharegpt_output_len=33), tokenizer)} == {33}
    in_order = draw(options(**changes, oversample=False, disable_shuffle=True), tokenizer)
    assert [s.prompt for s in in_order] == ["question one", "question two"]
    file.write_text('{"no": "list"}')
    with pytest.raises(ConfigError, match="no ShareGPT file"):
        draw(options(**changes), tokenizer)


def test_custom(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "own.jsonl", [{"prompt": "say p", "output_tokens": 3}, {"prompt": "say t", "output_tokens": 4}])
    changes: dict[str, Any] = {"dataset_name": "custom", "dataset_path": path, "num_prompts": 2, "disable_shuffle": True}
    rendered = draw(options(**changes), tokenizer)
    assert [(s.prompt, s.num_prompt, s.num_output) for s in rendered] == [("[user]say pp", 12, 256), ("[user]say tt", 12, 256)]
    plain = draw(options(**changes, skip_chat_template=True, custom_output_len=-1), tokenizer)
    assert [(s.prompt, s.num_prompt, s.num_output) for s in plain] == [("say p", 5, 3), ("say t", 5, 4)]
    assert [(s.prompt, s.num_prompt) for s in draw(options(**changes), None)] == [("say p", 0), ("say t", 0)]


def test_burstgpt(tokenizer: Tokenizer, tmp_path: Path) -> None:
    file = tmp_path / "burst.csv"
    file.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,100,10,110,x\n6,GPT-4,8,5,13,x\n7,GPT-4,9,0,9,x\n8,GPT-4,11,6,17,x\n"
    )
    samples = draw(options(dataset_name="burstgpt", dataset_path=str(file)), tokenizer)
    assert {(len(tokenizer.encode(s.prompt)), s.num_output) for s in samples} == {(8, 5), (11, 6)}
    assert len(samples) == 20


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dataset_name": "custom"}, "needs --dataset-path"),
        ({"dataset_name": "custom", "dataset_path": "/nowhere"}, "no file"),
        ({"num_prompts": 0}, "num-prompts"),
        ({"random_input_len": 0}, "cannot be"),
        ({"random_output_len": 0}, "random-output-len"),
    ],
)
def test_what_cannot_be(tokenizer: Tokenizer, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        draw(options(**changes), tokenizer)


@pytest.mark.parametrize(("text", "said"), [("{", "line 1"), ("[1]", "no JSON object"), ('{"text": "x"}', "prompt"), ("\n\n", "no sample")])
def test_files_that_cannot_be_read(tokenizer: Tokenizer, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=said):
        draw(options(dataset_name="custom", dataset_path=str(tmp_path / "x.jsonl")), tokenizer)


def test_random_needs_a_tokenizer() -> None:
    with pytest.raises(ConfigError, match="needs a tokenizer"):
        draw(DatasetOptions(), None)
