"""burstgpt: lengths of the BurstGPT traces (CSV), with random words of those lengths."""

import csv

import numpy as np

from octavo.bench.options import DatasetOptions
from octavo.bench.sample import Sample, chosen, path
from octavo.bench.words import Words
from octavo.errors import ConfigError

MODEL = "GPT-4"


def sample(options: DatasetOptions, words: Words) -> list[Sample]:
    """Requests to GPT-4 that were answered."""
    with path(options).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    try:
        sizes = [(int(r["Request tokens"]), int(r["Response tokens"])) for r in rows if r["Model"] == MODEL]
    except (KeyError, TypeError, ValueError) as fault:
        raise ConfigError(
            f"{options.dataset_path} is no BurstGPT file: {fault}", "columns Model, Request tokens, Response tokens"
        ) from None
    random = np.random.default_rng(options.seed)
    drawn = chosen(options, [Sample("", max(1, prompt), output) for prompt, output in sizes if output > 0])
    samples = []
    for each in drawn:
        text, found = words.text(random, words.draw(random, each.num_prompt - words.num_added))
        samples.append(Sample(text, found + words.num_added, each.num_output))
    return samples
