"""Documents: random ones that a grammar allows, and the ways in which one value can be written."""

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from octavo.grammar.closing import Finder
from octavo.grammar.vocabulary import Vocabulary

MOST_ORDERS = 24  # of the keys of one object


def generate(
    vocabulary: Vocabulary, matcher: Any, rng: random.Random, length: int, finder: Finder, is_json: bool = True
) -> list[int] | None:
    """The tokens of a text that the grammar allows: `length` random ones, then the nearest end. None if no end is near."""
    said: list[int] = []
    words = np.zeros(vocabulary.words, np.int32)
    ends = set(vocabulary.eos_token_ids)
    while len(said) < length and not matcher.is_complete:
        matcher.fill(words)
        allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist()
        assert allowed, "a text that can neither go on nor end"
        token = rng.choice(allowed)
        if token in ends:
            break
        assert matcher.accept(token)
        said.append(token)
    path = finder.find(matcher, 400, is_json)
    return None if path is None else [*said, *path]


def spellings(value: Any) -> Iterator[str]:
    """JSON texts of a value that differ in the order of keys, as an object has none."""
    for ordered in itertools.islice(_orders(value), 120):
        yield json.dumps(ordered, ensure_ascii=False)


def _orders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for keys in itertools.islice(itertools.permutations(value), MOST_ORDERS):
            for values in itertools.product(*(list(itertools.islice(_orders(value[key]), MOST_ORDERS)) for key in keys)):
                yield dict(zip(keys, values))
    elif isinstance(value, list):
        for values in itertools.product(*(list(itertools.islice(_orders(item), MOST_ORDERS)) for item in value)):
            yield list(values)
    elif isinstance(value, float) and value.is_integer():
        yield int(value)
    else:
        yield value
