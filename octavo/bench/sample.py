"""A sample: one prompt of a dataset, and how long its answer is to be; and what every dataset of a file does with its samples."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from octavo import plugins
from octavo.bench.options import DatasetOptions
from octavo.bench.words import Words
from octavo.errors import ConfigError
from octavo.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Sample:
    """prompt: a text; token ids where a server shall not tokenize. num_prompt: tokens; 0 if nobody has counted them. at_s: when a trace
    sent it, from its first request on.
    """

    prompt: str | list[int]
    num_prompt: int
    num_output: int
    at_s: float | None = None


def draw(options: DatasetOptions, tokenizer: Tokenizer | None) -> list[Sample]:
    """options.num_prompts samples. Raises ConfigError if the dataset cannot be read, or needs a tokenizer that is not there."""
    name = options.dataset_name
    if tokenizer is None and name != "custom":
        raise ConfigError(f"--dataset-name {name} needs a tokenizer", "pass --tokenizer with a folder, a .gguf file or a hub id")
    if options.num_prompts == 0:
        raise ConfigError("--num-prompts is 0", "pass at least 1")
    samples: list[Sample] = plugins.load("bench.datasets", name).sample(options, None if tokenizer is None else Words(tokenizer))
    if not samples:
        raise ConfigError(f"--dataset-name {name}: no sample is of use", "look at the file, and at the lengths that are asked for")
    return samples


def lines(options: DatasetOptions) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    file = path(options)
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = msgspec.json.decode(line)
        except msgspec.DecodeError as fault:
            raise ConfigError(f"{file}, line {number}: {fault}", "each line is one JSON object") from None
        if not isinstance(value, dict):
            raise ConfigError(f"{file}, line {number} is no JSON object")
        yield value


def path(options: DatasetOptions) -> Path:
    if options.dataset_path is None:
        raise ConfigError(f"--dataset-name {options.dataset_name} needs --dataset-path")
    file = Path(options.dataset_path).expanduser()
    if not file.is_file():
        raise ConfigError(f"--dataset-path {file} is no file")
    return file


def chosen(options: DatasetOptions, samples: Sequence[Sample]) -> list[Sample]:
    """options.num_prompts of them, in a random order unless that is forbidden, again from the first on when there are too few."""
    order = np.random.default_rng(options.seed).permutation(len(samples)) if not options.disable_shuffle else range(len(samples))
    count = options.num_prompts if options.oversample and samples else min(options.num_prompts, len(samples))
    found = [samples[order[i % len(samples)]] for i in range(count)]
    return found if options.output_len is None else [replace(s, num_output=options.output_len) for s in found]
