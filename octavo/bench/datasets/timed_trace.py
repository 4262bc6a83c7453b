"""timed_trace: requests as someone's server once got them: when, how long, and with which chunks in common."""

from functools import lru_cache
from typing import Any

import numpy as np

from octavo.bench.options import DatasetOptions
from octavo.bench.sample import Sample, lines
from octavo.bench.words import Words
from octavo.errors import ConfigError


def sample(options: DatasetOptions, words: Words) -> list[Sample]:
    """The first num_prompts lines by time. Equal hash ids become equal words, in every line and every run of one seed."""
    entries = sorted((_Entry(line, options) for line in lines(options)), key=lambda e: e.at_s)[: options.num_prompts]
    random = np.random.default_rng(options.seed)

    @lru_cache(maxsize=65_536)
    def chunk(hash_id: int) -> tuple[int, ...]:
        return tuple(words.draw(np.random.default_rng([options.seed, hash_id & (2**63 - 1)]), options.timed_trace_chunk_hash_size))

    samples = []
    for entry in entries:
        count = max(entry.num_prompt - words.num_added, 0)
        ids = [token for hash_id in entry.hash_ids for token in chunk(hash_id)][:count]
        text, found = words.text(random, ids + words.draw(random, count - len(ids)))
        samples.append(Sample(text, found + words.num_added, entry.num_output, entry.at_s - entries[0].at_s))
    return samples


class _Entry:
    """One line of the trace."""

    def __init__(self, line: dict[str, Any], options: DatasetOptions) -> None:
        try:
            self.at_s = float(line[options.timed_trace_label_timestamp]) * options.timed_trace_sec_multiplier
            self.num_prompt = max(1, int(line[options.timed_trace_label_input_length]))
            self.num_output = max(1, int(line[options.timed_trace_label_output_length]))
            self.hash_ids = [int(h) for h in line.get(options.timed_trace_label_hash_ids) or ()]
        except KeyError as fault:
            raise ConfigError(f"a line of the trace has no {fault}", "name its keys with the options --timed-trace-label-…") from None
        except (TypeError, ValueError) as fault:
            raise ConfigError(f"a line of the trace cannot be read: {fault}") from None
        if options.output_len is not None:
            self.num_output = options.output_len
