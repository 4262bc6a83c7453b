"""Load: every request sent when it is due, at most so many at once, and what came of each."""

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from octavo.bench import backends
from octavo.bench.answer import Answer
from octavo.bench.http_client import Client, RequestFailed
from octavo.bench.options import ServeOptions
from octavo.bench.sample import Sample

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Outcome:
    """What came of one request; seconds. start_s: by time.perf_counter. error: empty if it succeeded."""

    num_prompt: int
    start_s: float = 0.0
    queue_s: float = 0.0  # from when it was due to when it was sent
    ttft_s: float = 0.0
    itl_s: list[float] = field(default_factory=list)  # between two chunks of the output
    latency_s: float = 0.0
    num_output: int | None = None  # tokens; None if the server did not tell
    text: str = ""
    error: str = ""

    @property
    def is_success(self) -> bool:
        return not self.error

    @property
    def end_s(self) -> float:
        return self.start_s + self.latency_s


class Sender:
    """Sends requests of one run to one server."""

    def __init__(self, client: Client, options: ServeOptions, model: str) -> None:
        self._client = client
        self._options = options
        self._model = model
        self._path = backends.endpoint(options)
        self._num_sent = 0

    async def send(self, sample: Sample, prefix: str | None = None) -> Outcome:
        """One request, from its first byte out to its last byte in. Never raises for what the server does."""
        message = _encode(backends.body(self._options, self._model, sample))
        name = prefix if prefix is not None else self._options.request_id_prefix or ""
        headers = f"X-Request-Id: {name}{self._num_sent}\r\n"
        self._num_sent += 1
        answer, outcome = Answer(), Outcome(sample.num_prompt, start_s=time.perf_counter())
        limit_s = self._options.request_timeout_sec
        timer = asyncio.timeout(limit_s)
        try:
            async with timer:
                answer.finish(await self._client.request("POST", self._path, message, answer.feed, headers))
        except TimeoutError:
            answer.error = f"no whole answer within {limit_s:g} s"
        except RequestFailed as error:
            answer.error = answer.error or error.fact
        return _outcome(answer, outcome)


def _outcome(answer: Answer, outcome: Outcome) -> Outcome:
    times = answer.times
    outcome.error, outcome.text = answer.error, answer.text
    outcome.num_prompt = outcome.num_prompt if answer.num_prompt is None else answer.num_prompt
    outcome.num_output = answer.num_output
    if times:
        outcome.ttft_s = times[0] - outcome.start_s
        outcome.itl_s = [later - earlier for earlier, later in itertools.pairwise(times)]
        outcome.latency_s = times[-1] - outcome.start_s
    else:
        outcome.ttft_s = outcome.latency_s = time.perf_counter() - outcome.start_s
    return outcome


@dataclass(slots=True)
class Run:
    """A whole run: outcomes in the order of the samples, and its seconds."""

    outcomes: list[Outcome]
    start_s: float
    seconds: float
    probes: list[Outcome]


async def run(
    sender: Sender,
    samples: Sequence[Sample],
    at_s: Sequence[float],
    options: ServeOptions,
    on_end: Callable[[Outcome], None] = lambda _: None,
) -> Run:
    """Send sample i at at_s[i]. A request that finds the limit of concurrency reached waits its turn; that is its queue time."""
    places = asyncio.Semaphore(options.max_concurrency) if options.max_concurrency else None
    start_s = time.perf_counter()

    async def one(sample: Sample, due_s: float) -> Outcome:
        if places is None:
            outcome = await sender.send(sample)
        else:
            async with places:
                outcome = await sender.send(sample)
        outcome.queue_s = max(0.0, outcome.start_s - due_s)
        on_end(outcome)
        return outcome

    is_over = asyncio.Event()
    probing = asyncio.ensure_future(_probe(sender, options.probe_request_rate, is_over))
    tasks: list[asyncio.Task[Outcome]] = []
    try:
        for sample, second in zip(samples, at_s, strict=True):
            due_s = start_s + second
            if (wait_s := due_s - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            tasks.append(asyncio.ensure_future(one(sample, due_s)))
        outcomes = await asyncio.gather(*tasks)
        seconds = time.perf_counter() - start_s
        is_over.set()
        probes = await probing
    finally:
        for task in (*tasks, probing):
            task.cancel()
        await asyncio.gather(*tasks, probing, return_exceptions=True)
    return Run(list(outcomes), start_s, seconds, probes)


async def _probe(sender: Sender, rate: float, is_over: asyncio.Event) -> list[Outcome]:
    """One-token requests at a steady rate, beside the load and its limit; none starts after it, all that started are waited for."""
    tasks: list[asyncio.Future[Outcome]] = []
    while rate > 0 and not is_over.is_set():
        try:
            await asyncio.wait_for(is_over.wait(), 1 / rate)
        except TimeoutError:
            tasks.append(asyncio.ensure_future(sender.send(Sample("Hello", 1, 1), "probe-")))
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
