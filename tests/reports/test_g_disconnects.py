"""Reports of kind G: a client that leaves, wherever its request is, leaves nothing behind."""

import asyncio
import contextlib
import random
from typing import Any

import httpx
import psutil
import pytest

from tests.reports.servers import CHAT, COMPLETIONS, Server, joined, says, text_of
from tests.reports.servers2 import client_of, counts, crowd, gauges, leave_after, leave_at_random, leave_stream, seconds_until_idle, total
from tests.server.real_server import Reading

LONG: dict[str, Any] = {"messages": says("o"), "prompt": "say o", "max_tokens": 1000, "ignore_eos": True}
WITHIN_S = 5.0  # a step takes milliseconds; the rest is what a machine of two cores with other work takes


def answers_as_ever(server: Server) -> bool:
    """The next request is answered rightly, and nothing in the log is a fault."""
    assert text_of(server.ask(CHAT, messages=says("p"), temperature=0)["choices"][0]) == "plain words, no more"
    return not server.faults


async def running(server: Server, num_running: int, num_waiting: int = 0) -> None:
    """Until at least so many run, and so many wait."""
    async with asyncio.timeout(30):
        while (found := (await asyncio.to_thread(gauges, server))[:2])[0] < num_running or found[1] < num_waiting:
            continue


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("kind", ["stream", "whole", "queued", "queued stream"])
async def test_g1_work_ends_when_its_client_leaves(scripted: Server, path: str, kind: str) -> None:
    async with client_of(scripted) as http:
        others = []
        if kind.startswith("queued"):
            others = [asyncio.ensure_future(http.post(path, json=LONG)) for _ in range(8)]
            await running(scripted, 8)
        generated = total(scripted, "vllm:generation_tokens_total")
        leaving = asyncio.ensure_future(http.post(path, json=LONG | {"stream": kind.endswith("stream")}))
        await running(scripted, max(1, len(others)), 1 if others else 0)
        for each in (leaving, *others):
            each.cancel()
        for each in (leaving, *others):
            with contextlib.suppress(asyncio.CancelledError):
                await each
    assert seconds_until_idle(scripted) < WITHIN_S
    if not others:
        assert total(scripted, "vllm:generation_tokens_total") - generated < 1000
    assert answers_as_ever(scripted)


async def test_g2_500_aborted_streams_leave_nothing(scripted: Server) -> None:
    await crowd(scripted, 500)
    assert seconds_until_idle(scripted) < WITHIN_S
    assert gauges(scripted) == [0, 0, 0]  # of all blocks none is held
    assert answers_as_ever(scripted)


@pytest.mark.slow
async def test_g3_memory_does_not_grow_with_the_number_of_calls(scripted: Server) -> None:
    processes = [psutil.Process(scripted.process.pid), *scripted.children]

    async def call(http: httpx.AsyncClient, number: int) -> None:
        body = {"prompt": f"number {number} p", "messages": says("p", f"{number}"), "stream": number % 3 == 0, "temperature": 0}
        assert (await http.post((CHAT, COMPLETIONS)[number % 2], json=body)).status_code == 200

    async def calls(first: int, last: int) -> int:
        async with client_of(scripted) as http:
            places = asyncio.Semaphore(16)

            async def one(number: int) -> None:
                async with places:
                    await call(http, number)

            await asyncio.gather(*(one(number) for number in range(first, last)))
        return sum(process.memory_info().rss for process in processes)

    before = await calls(0, 2000)  # caches and pools have the size by then that they keep
    after = await calls(2000, 12_000)
    assert after - before < 0.05 * before
    assert gauges(scripted) == [0, 0, 0]


@pytest.mark.parametrize("moment", ["in the queue", "before its first step", "in its prefill", "between chunks", "at its end"])
async def test_g4_an_abort_at_any_moment_is_survived(scripted: Server, moment: str) -> None:
    prompt = "x" * 900 + "o"  # fifteen chunks
    async with client_of(scripted) as http:
        others: list[asyncio.Task[httpx.Response]] = []
        if moment == "in the queue":
            others = [asyncio.ensure_future(http.post(COMPLETIONS, json=LONG)) for _ in range(8)]
            await running(scripted, 8)
        for number in range(25):
            body = {"prompt": f"{number}{prompt}", "max_tokens": 3, "cache_salt": f"{moment}{number}"}
            seconds = {"in the queue": 0.02, "before its first step": 0.0, "in its prefill": 0.004 * number, "between chunks": 0.0}
            if moment in ("between chunks", "at its end"):
                await leave_stream(http, COMPLETIONS, body, 0 if moment == "between chunks" else 2)
            else:
                await leave_after(http, COMPLETIONS, body, seconds[moment])
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    assert seconds_until_idle(scripted) < WITHIN_S
    assert answers_as_ever(scripted)


async def test_g5_who_leaves_before_its_first_step_is_counted_as_aborted(scripted: Server) -> None:
    before = counts(scripted, "vllm:request_success_total")
    rows = [Reading(scripted.url, stream=True, max_tokens=250, prompt=f"{n} o", messages=says("o", f"{n}")) for n in range(8)]
    async with client_of(scripted) as http:
        await running(scripted, 8)
        waiting = asyncio.ensure_future(http.post(CHAT, json=LONG))
        await running(scripted, 8, 1)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
    for row in rows:
        assert joined(row.events[:-1]) == (" tick tock tack" * 84)[: len(" tick tock tack" * 83 + " tick")]
    scripted.wait_idle()
    after = counts(scripted, "vllm:request_success_total")
    grown = {label: after[label] - before.get(label, 0) for label in after if after[label] != before.get(label, 0)}
    assert grown == {'finished_reason="length"': 8, 'finished_reason="abort"': 1}
    assert answers_as_ever(scripted)


async def test_g6_an_abort_of_what_shares_a_prefix_harms_nobody_else(numbers: Server) -> None:
    """Random weights: a wrong or lost block of the shared prefix would be another text."""
    prompt = "the quick brown fox " * 12
    body: dict[str, Any] = {"prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    expected = numbers.ask(COMPLETIONS, **body, cache_salt="alone")["choices"][0]["token_ids"]
    rng = random.Random(0)
    async with client_of(numbers) as http:

        async def keep() -> None:
            response = await http.post(COMPLETIONS, json=body)
            assert response.json()["choices"][0]["token_ids"] == expected

        async def leave(number: int) -> None:
            if number % 3:
                await leave_stream(http, COMPLETIONS, body | {"max_tokens": 400}, rng.randrange(6))
            else:
                await leave_at_random(http, number, rng)

        await asyncio.gather(*(leave(number) if number % 4 else keep() for number in range(60)))
    numbers.wait_idle()
    again = numbers.ask(COMPLETIONS, **body)
    assert again["choices"][0]["token_ids"] == expected
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert not numbers.faults
