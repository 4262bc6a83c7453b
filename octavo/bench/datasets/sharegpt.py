"""sharegpt: the first question of each conversation of a ShareGPT file, with as many tokens to generate as its answer has."""

import itertools
from typing import Any

import msgspec
import numpy as np

from octavo.bench.options import DatasetOptions
from octavo.bench.sample import Sample, chosen, path
from octavo.bench.words import Words
from octavo.errors import ConfigError

LEAST = 4  # tokens of a question, and of an answer whose length counts
MOST_PROMPT = 1024
MOST_TOGETHER = 2048


def sample(options: DatasetOptions, words: Words) -> list[Sample]:
    """Conversations of two turns or more whose lengths are neither tiny nor huge; the bounds are those of vLLM's bench."""
    file = path(options)
    try:
        conversations = msgspec.json.decode(file.read_bytes())
        turns = [(_said(c, 0), _said(c, 1)) for c in conversations if len(c.get("conversations", ())) >= 2]
    except (msgspec.DecodeError, AttributeError, TypeError, KeyError) as fault:
        raise ConfigError(f"{file} is no ShareGPT file: {fault}", 'a list of {"conversations": [{"value": ...}, ...]}') from None
    if not options.disable_shuffle:
        turns = [turns[i] for i in np.random.default_rng(options.seed).permutation(len(turns))]
    found = list(itertools.islice(_usable(turns, options, words), options.num_prompts))
    return chosen(options, found)


def _usable(turns: list[tuple[str, str]], options: DatasetOptions, words: Words) -> Any:
    given = options.sharegpt_output_len if options.output_len is None else options.output_len
    for question, answer in turns:
        num_prompt = len(words.tokenizer.encode(question))
        num_output = len(words.tokenizer.encode(answer)) if given is None else given
        is_long_enough = num_prompt >= LEAST and (given is not None or num_output >= LEAST)
        if is_long_enough and num_prompt <= MOST_PROMPT and num_prompt + num_output <= MOST_TOGETHER:
            yield Sample(question, num_prompt, num_output)


def _said(conversation: dict[str, Any], turn: int) -> str:
    return str(conversation["conversations"][turn]["value"])
