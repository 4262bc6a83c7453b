"""random: prompts of random words, each of exactly the tokens that were drawn for it, after a prefix that all share."""

import numpy as np

from octavo.bench.options import DatasetOptions
from octavo.bench.sample import Sample
from octavo.bench.words import Words, lengths, ranges
from octavo.errors import ConfigError


def sample(options: DatasetOptions, words: Words) -> list[Sample]:
    """A prompt's length counts what the tokenizer adds to it, and comes on top of the prefix."""
    random = np.random.default_rng(options.seed)
    input_len = options.random_input_len if options.input_len is None else options.input_len
    output_len = options.random_output_len if options.output_len is None else options.output_len
    for_input, for_output = ranges(options.random_range_ratio)
    if input_len <= words.num_added:
        raise ConfigError(f"prompts of {input_len} tokens cannot be: the tokenizer adds {words.num_added}", "raise --random-input-len")
    if output_len < 1:
        raise ConfigError(f"--random-output-len {output_len} is less than 1")
    prefix = words.draw(random, options.random_prefix_len)
    inputs = lengths(random, input_len, for_input, options.num_prompts)
    outputs = lengths(random, output_len, for_output, options.num_prompts)
    samples = []
    for num_prompt, num_output in zip(inputs, outputs, strict=True):
        own = words.draw(random, max(num_prompt - words.num_added, 0))
        text, found = words.text(random, prefix + own)
        samples.append(Sample(text, found + words.num_added, num_output))
    return samples
