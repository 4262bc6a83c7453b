"""Driver: one engine in a process of its own, told what to measure by lines of JSON on its input and answering with lines of JSON.

Runs in the engine's environment, so nothing but the standard library and this folder is imported. An engine is a class with `generate`; all
measures are made of it here, alike for every engine.
"""

import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks import workload

DECODE_TOKENS = 129
CONTEXT_STEPS = 33
LONGEST = 32768

Wanted = dict[str, Any]  # model, format, threads, context, vocabulary, keeps_prefixes
Value = dict[str, Any]


class Engine:
    """What every driver implements. wanted: as the parent wrote it."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.tokens = workload.Tokens(wanted["vocabulary"])

    def facts(self) -> Value:
        """Versions, and what is known of the model's memory."""
        return {}

    def generate(self, prompts: list[list[int]], counts: list[int]) -> float:
        """Seconds until every prompt has so many tokens, greedy, whatever ends a text ignored. Raises where fewer came."""
        raise NotImplementedError

    def gaps(self, prompt: list[int], count: int) -> list[float]:
        """Seconds between the tokens that follow a prompt."""
        raise NotImplementedError

    def measure(self, name: str, number: int) -> Value:
        kind, _, size = name.partition("-")
        return MEASURES[kind](self, number, int(size or 0))


def decode(engine: Engine, number: int, _: int) -> Value:
    """Tokens a second of one request with a short context: 128 steps, the prompt's time taken away."""
    prompt = engine.tokens.single(32, number)
    first = engine.generate([prompt], [1])
    whole = engine.generate([prompt], [DECODE_TOKENS])
    return {"tokens_s": (DECODE_TOKENS - 1) / (whole - first)}


def prefill(engine: Engine, number: int, length: int) -> Value:
    """Tokens of one prompt a second, until the first token that follows it."""
    return {"tokens_s": length / engine.generate([engine.tokens.single(length, 100 * number)], [1])}


def offline(engine: Engine, number: int, count: int) -> Value:
    """Generated tokens a second of requests that are all there at once, their prompts' time included."""
    requests = engine.tokens.offline(count or workload.OFFLINE_REQUESTS)
    seconds = engine.generate([prompt for prompt, _ in requests], [output for _, output in requests])
    return {"tokens_s": sum(output for _, output in requests) / seconds, "seconds": seconds}


def context(engine: Engine, number: int, length: int) -> Value:
    """Seconds for each token after a prompt of `length` tokens. One prompt is the beginning of the next: an engine may keep it."""
    gaps = engine.gaps(engine.tokens.single(LONGEST)[: length - CONTEXT_STEPS], CONTEXT_STEPS)
    return {"seconds_token": statistics.median(gaps[1:])}


MEASURES: dict[str, Callable[[Engine, int, int], Value]] = {"decode": decode, "prefill": prefill, "offline": offline, "context": context}


def run(make: Callable[[Wanted], Any]) -> None:
    """Serve one parent until it closes our input."""
    with _answers() as say:
        try:
            started = time.perf_counter()
            engine = make(json.loads(sys.argv[1]))
            say({"facts": engine.facts() | {"load_s": time.perf_counter() - started}})
            for line in sys.stdin:
                asked = json.loads(line)
                say({"value": engine.measure(asked["measure"], asked["number"])})
        except Exception as error:
            traceback.print_exc()
            say({"error": f"{type(error).__name__}: {error}"[:500]})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # an engine's own end may hang, and nothing of it is wanted any more


@contextmanager
def _answers() -> Iterator[Callable[[Value], None]]:
    """Standard output for the answers alone: what engines print goes to standard error."""
    with os.fdopen(os.dup(1), "w") as own:
        os.dup2(2, 1)

        def say(value: Value) -> None:
            own.write(json.dumps(value) + "\n")
            own.flush()

        yield say
