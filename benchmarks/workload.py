"""The workload: the same token ids for every engine, drawn from fixed seeds.

Nothing but the standard library is imported here, since each engine's own environment runs it. Ids lie between 1,000 and 39,999, where
SmolLM2's vocabulary has no special tokens; a model with fewer words gets them folded into its own.
"""

import random

LOWEST, HIGHEST = 1000, 40000
OFFLINE_REQUESTS = 64
OFFLINE_PROMPT_TOKENS, OFFLINE_OUTPUT_TOKENS = 21_384, 11_791  # of all 64 together
PREFIX, OWN, ANSWER = 256, (32, 64), 64  # of the server's load: tokens that all prompts share, tokens of their own, tokens to generate
CLIENTS = (1, 8, 32)

Request = tuple[list[int], int]  # prompt, tokens to generate


class Tokens:
    """Draws token ids below `vocabulary`."""

    def __init__(self, vocabulary: int = HIGHEST) -> None:
        self._room = min(HIGHEST, vocabulary) - LOWEST
        if self._room < 1:
            raise ValueError(f"a vocabulary of {vocabulary} words is too small for the workload")

    def draw(self, source: random.Random, count: int) -> list[int]:
        drawn = [source.randrange(LOWEST, HIGHEST) for _ in range(count)]
        return [LOWEST + (token - LOWEST) % self._room for token in drawn]

    def single(self, length: int, seed: int = 7) -> list[int]:
        """One prompt."""
        return self.draw(random.Random(length + seed), length)

    def offline(self, count: int = OFFLINE_REQUESTS, seed: int = 0) -> list[Request]:
        """Prompts of 32 to 512 tokens, 64 to 256 to generate; all are there at once."""
        source = random.Random(seed)
        found = []
        for _ in range(count):
            prompt = self.draw(source, source.randint(32, 512))
            found.append((prompt, source.randint(64, 256)))
        return found

    def shared(self, count: int, seed: int = 1) -> list[Request]:
        """Prompts with one beginning, as users of one system prompt send them."""
        source = random.Random(seed)
        prefix = self.draw(source, PREFIX)
        return [(prefix + self.draw(source, source.randint(*OWN)), ANSWER) for _ in range(count)]


def num_requests(clients: int) -> int:
    """Of the server's load, so that each client sends two and few clients still send enough."""
    return max(12, 2 * clients)
