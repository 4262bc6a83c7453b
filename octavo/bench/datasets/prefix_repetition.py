"""prefix_repetition: a few long prefixes, each with many endings, in a random order: what a prefix cache is for."""

import numpy as np

from octavo.bench.options import DatasetOptions
from octavo.bench.sample import Sample
from octavo.bench.words import Words
from octavo.errors import ConfigError


def sample(options: DatasetOptions, words: Words) -> list[Sample]:
    """num_prompts // num_prefixes prompts of each prefix."""
    random = np.random.default_rng(options.seed)
    each = options.num_prompts // max(options.prefix_repetition_num_prefixes, 1)
    if each < 1 or options.prefix_repetition_num_prefixes < 1:
        raise ConfigError(
            f"{options.num_prompts} prompts do not go round {options.prefix_repetition_num_prefixes} prefixes",
            "raise --num-prompts, or lower --prefix-repetition-num-prefixes",
        )
    num_output = options.prefix_repetition_output_len if options.output_len is None else options.output_len
    samples = []
    for _ in range(options.prefix_repetition_num_prefixes):
        prefix = words.draw(random, options.prefix_repetition_prefix_len - words.num_added)
        for _ in range(each):
            text, found = words.text(random, prefix + words.draw(random, options.prefix_repetition_suffix_len))
            samples.append(Sample(text, found + words.num_added, num_output))
    if options.disable_shuffle:
        return samples
    return [samples[i] for i in random.permutation(len(samples))]
