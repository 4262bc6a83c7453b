"""Reports of kind H: what a crowd of requests is answered, and when. The cache holds about one of the eight longest that may run."""

import asyncio
import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.reports.servers import COMPLETIONS, Server, serving
from tests.reports.servers2 import TIGHT, client_of, gauges, total
from tests.server.real_server import Reading

QUEUE = 20  # requests that may wait
LOW, HIGH = 10, 1  # the lower number goes first


@pytest.fixture(scope="module")
def tight(random_model: Path) -> Iterator[Server]:
    """Random weights, so that a token computed wrongly is another token."""
    with serving(random_model, *TIGHT, "--scheduling-policy", "priority", "--max-num-queued-reqs", str(QUEUE)) as server:
        yield server
        server.wait_idle()
        assert gauges(server) == [0, 0, 0]


def body(number: int, **changes: Any) -> dict[str, Any]:
    """A request whose prompt no other one shares."""
    fields = {"max_tokens": 70, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    return {"prompt": f"{number} " * 20, **fields, **changes}


def essence(answer: Any) -> Any:
    """All of an answer that does not tell when it came, nor from which cache."""
    choice, usage = answer["choices"][0], answer["usage"]
    told = {name: choice.get(name) for name in ("text", "token_ids", "finish_reason", "logprobs", "prompt_logprobs")}
    return told | {name: usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}


def together(server: Server, bodies: list[dict[str, Any]]) -> list[Any]:
    with ThreadPoolExecutor(len(bodies)) as pool:
        responses = list(pool.map(lambda each: httpx.post(server.url + COMPLETIONS, json=each, timeout=120), bodies))
    assert [response.status_code for response in responses] == [200] * len(bodies), responses[0].text
    return [response.json() for response in responses]


def preemptions(server: Server) -> float:
    return total(server, "vllm:num_preemptions_total")


SCORED = {"prompt_logprobs": 1, "logprobs": 2, "prompt": "a long prompt of several chunks " * 3, "max_tokens": 40}
PENALTIES = {"presence_penalty": 0.5, "frequency_penalty": 0.3, "repetition_penalty": 1.2}


@pytest.mark.parametrize("changes", [{}, SCORED | PENALTIES], ids=["plain", "scored, with penalties"])
def test_h1_h2_a_preempted_request_is_answered_as_if_it_had_been_alone(tight: Server, changes: dict[str, Any]) -> None:
    """Log-probabilities of the prompt and penalties tell where the worker believes that the prompt ends."""
    bodies = [body(number, **changes, cache_salt="alone") for number in range(8)]
    for number, each in enumerate(bodies):
        each["prompt"] = f"{number} {each['prompt']}"
    alone = [essence(tight.ask(COMPLETIONS, **each)) for each in bodies]
    before = preemptions(tight)
    crowded = [essence(answer) for answer in together(tight, [each | {"cache_salt": "crowded"} for each in bodies])]
    assert preemptions(tight) > before
    assert crowded == alone


def test_h3_nobody_is_preempted_again_and_again(tight: Server) -> None:
    """Of equal priority: the one that came last gives way, and comes back before all who came after it."""
    bodies = [body(number, priority=5, max_tokens=80) for number in range(20, 34)]
    before = preemptions(tight)
    answers = together(tight, bodies)
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [80] * 14
    blocks = -(-answers[0]["usage"]["total_tokens"] // 16)  # of one request
    assert 0 < preemptions(tight) - before <= len(bodies) * blocks  # each of them gives way for a block that somebody before it needs


async def begun(server: Server, count: int) -> None:
    async with asyncio.timeout(60):
        while (await asyncio.to_thread(gauges, server))[0] < count:
            continue


async def test_h4_high_priority_takes_the_place_of_low_priority(tight: Server) -> None:
    ended: list[str] = []
    async with client_of(tight) as http:

        async def low(each: dict[str, Any], has_begun: asyncio.Event) -> None:
            """A stream, which tells when its request runs; log-probabilities make its steps slow enough to be met."""
            async with http.stream("POST", COMPLETIONS, json=each | {"stream": True, "logprobs": 5, "priority": LOW}) as response:
                async for _ in response.aiter_lines():
                    has_begun.set()
            ended.append("low")

        # one that needs a row, of which there is none, and blocks, of which there are; and one that needs the blocks of others too
        for prompt, length in (("h", 58), ("h " * 200, 100)):
            wanted = body(40, prompt=prompt, max_tokens=5)
            expected = essence(tight.ask(COMPLETIONS, **wanted))
            starts = [asyncio.Event() for _ in range(8)]
            lows = [asyncio.ensure_future(low(body(50 + n, prompt=f"{n}", max_tokens=length), each)) for n, each in enumerate(starts)]
            async with asyncio.timeout(60):
                await asyncio.gather(*(each.wait() for each in starts))
            before = preemptions(tight)
            high = await http.post(COMPLETIONS, json=wanted | {"priority": HIGH, "cache_salt": "h4"})
            ended.append("high")
            assert essence(high.json()) == expected
            assert ended == ["high"]
            assert preemptions(tight) > before
            await asyncio.gather(*lows)
            ended.clear()


async def test_h5_a_large_request_that_waits_for_room_blocks_nobody_and_gets_its_turn(tight: Server) -> None:
    ended: list[str] = []
    async with client_of(tight) as http:

        async def ask(name: str, each: dict[str, Any]) -> None:
            response = await http.post(COMPLETIONS, json=each)
            assert response.status_code == 200
            ended.append(name)

        holder = asyncio.ensure_future(ask("holder", body(60, prompt="h" * 62, max_tokens=440)))  # 4 of 35 blocks, and more
        await begun(tight, 1)
        large = asyncio.ensure_future(ask("large", body(70, prompt="L" * 500, max_tokens=2)))  # 32 of them
        async with asyncio.timeout(30):
            while (await asyncio.to_thread(gauges, tight))[1] < 1:
                continue
        await asyncio.gather(*(ask("small", body(80 + n, prompt=f"{n}", max_tokens=2)) for n in range(3)))
        assert ended == ["small"] * 3
        flood_is_over = asyncio.Event()

        async def flood(number: int) -> None:
            """One small request after the other: the large one must not wait for their end."""
            while not flood_is_over.is_set():
                await http.post(COMPLETIONS, json=body(number, prompt=f"{number}", max_tokens=30))

        floods = [asyncio.ensure_future(flood(90 + n)) for n in range(6)]
        await asyncio.wait_for(large, 60)
        flood_is_over.set()
        await asyncio.gather(*floods, holder)


async def test_h6_preemption_for_priority_50_times_over(tight: Server) -> None:
    rng = random.Random(6)
    expected: dict[str, list[int]] = {}
    async with client_of(tight) as http:

        async def ask(number: int) -> None:
            """One after the other, so that every one meets others that run; all answers to a prompt are beginnings of one text."""
            for _ in range(12):
                each = body(0, prompt=f"prompt {rng.randrange(7)}" * 10, max_tokens=rng.choice([3, 20, 60]), priority=rng.randrange(10))
                response = await http.post(COMPLETIONS, json=each | {"cache_salt": f"h6 {number % 3}"})
                assert response.status_code == 200
                answer = response.json()["choices"][0]["token_ids"]
                known = expected.setdefault(each["prompt"], answer)
                shorter = min(len(known), len(answer))
                assert known[:shorter] == answer[:shorter]
                expected[each["prompt"]] = max(known, answer, key=len)

        before = preemptions(tight)
        await asyncio.gather(*(ask(number) for number in range(14)))
        assert preemptions(tight) - before >= 50
    assert not tight.faults


async def test_h7_a_full_queue_refuses_and_says_when_to_come_again(tight: Server) -> None:
    async with httpx.AsyncClient(base_url=tight.url, timeout=120, limits=httpx.Limits(max_connections=None)) as http:
        bodies = [body(n, prompt=f"{n}", max_tokens=60, stream=n % 3 == 0) for n in range(150)]
        responses = await asyncio.gather(*(http.post(COMPLETIONS, json=each) for each in bodies))
    for is_stream in (False, True):
        assert {response.status_code for response, each in zip(responses, bodies) if each["stream"] == is_stream} == {200, 503}
    assert [response.status_code for response in responses].count(200) >= 8 + QUEUE
    for response, each in zip(responses, bodies):
        if response.status_code == 503:
            assert response.headers["retry-after"] == "1"
            assert response.json()["error"]["type"] == "ServiceUnavailableError"
        else:
            assert response.text.endswith("data: [DONE]\n\n") if each["stream"] else response.json()["usage"]["completion_tokens"] == 60
    assert tight.post(COMPLETIONS, prompt="x", max_tokens=1).status_code == 200
    many = tight.post(COMPLETIONS, prompt="x", max_tokens=5, n=200, temperature=1, seed=1)  # as many requests as it has sequences
    assert (many.status_code, many.headers["retry-after"]) == (503, "1")


def test_h8_a_long_prompt_leaves_every_stream_its_token_of_each_step(scripted: Server) -> None:
    """A step computes 64 tokens, so a prompt of 960 takes 15 of them or more, and the stream gets a token in each."""

    def num_tokens() -> int:
        """Of what the stream has brought: an event may hold several, where its reader is behind."""
        events = [json.loads(line) for line in stream.text.rpartition("\n\n")[0].replace("data: ", "").split("\n\n") if line]
        return sum(len(event["choices"][0]["token_ids"] or ()) for event in events)

    stream = Reading(scripted.url, COMPLETIONS, prompt="h8 o", max_tokens=1000, stream=True, return_token_ids=True)
    assert stream.began.wait(30)
    before = num_tokens()
    answer = scripted.ask(COMPLETIONS, prompt="L" * 960, max_tokens=1)
    assert num_tokens() - before >= 14
    assert stream.is_alive()
    assert answer["usage"]["prompt_tokens"] == 960
    assert stream.events[-1] == "[DONE]"
