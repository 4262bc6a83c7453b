"""AsyncLLM over a scripted engine: streams, merging, aborts, admission, death."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from octavo.errors import EngineDeadError, GenerationError, OverloadedError, RequestError
from octavo.frontend import async_llm
from octavo.frontend.async_llm import AsyncLLM
from octavo.frontend.inputs import EncodedPrompt
from octavo.protocol.outputs import RequestOutput
from octavo.protocol.sampling_params import BeamSearchParams, RequestOutputKind, SamplingParams
from octavo.text.tokenizer import Tokenizer
from tests.unit.frontend.scripted import AsyncScriptedClient, ScriptedEngine, make_config

DELTA, CUMULATIVE, FINAL = RequestOutputKind.DELTA, RequestOutputKind.CUMULATIVE, RequestOutputKind.FINAL_ONLY


@contextlib.asynccontextmanager
async def running(
    tokenizer: Tokenizer, script: Any, per_step: int = 1, **changes: Any
) -> AsyncIterator[tuple[AsyncLLM, AsyncScriptedClient]]:
    client = AsyncScriptedClient(ScriptedEngine(tokenizer, script, per_step))
    async with AsyncLLM(make_config(tokenizer, **changes), client, tokenizer) as llm:  # type: ignore[arg-type]
        yield llm, client


async def collect(llm: AsyncLLM, prompt: Any = "x", name: str = "r", **params: Any) -> list[RequestOutput]:
    return [output async for output in llm.generate(prompt, SamplingParams(**{"max_tokens": 60} | params), name)]


@pytest.mark.parametrize("per_step", [1, 4])
@pytest.mark.parametrize("stop", [None, "wor", ["orld"]])
async def test_deltas_concatenate_to_the_whole(tokenizer: Tokenizer, per_step: int, stop: Any) -> None:
    async with running(tokenizer, "hello 😀 world, hello 中文 again", per_step) as (llm, _):
        whole = (await collect(llm, output_kind=FINAL, stop=stop, logprobs=1))[0].outputs[0]
        deltas = await collect(llm, output_kind=DELTA, stop=stop, logprobs=1)
        cumulative = await collect(llm, output_kind=CUMULATIVE, stop=stop, logprobs=1)
    pieces = [d.outputs[0] for d in deltas]
    assert "".join(p.text for p in pieces) == whole.text == cumulative[-1].outputs[0].text
    assert all("\ufffd" not in p.text for p in pieces)
    assert [t for p in pieces for t in p.token_ids] == whole.token_ids == cumulative[-1].outputs[0].token_ids
    assert [position for p in pieces for position in p.logprobs or []] == whole.logprobs
    assert [d.finished for d in deltas] == [False] * (len(deltas) - 1) + [True]
    assert (pieces[-1].finish_reason, pieces[-1].stop_reason) == (whole.finish_reason, whole.stop_reason)
    for shorter, longer in itertools.pairwise(cumulative):
        assert longer.outputs[0].text.startswith(shorter.outputs[0].text)


async def test_held_back_text_is_flushed_at_the_end(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, "UNO DUE TRE") as (llm, _):
        deltas = await collect(llm, output_kind=DELTA, stop=["TRE\nAAAA"])
        assert "".join(d.outputs[0].text for d in deltas) == "UNO DUE TRE"
        cut = await collect(llm, output_kind=DELTA, stop=["TRE\nAAAA"], max_tokens=10)
        assert "".join(d.outputs[0].text for d in cut) == "UNO DUE TR"


async def test_stream_interval_gives_the_first_token_at_once_then_batches(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, "abcdefghij", stream_interval=4) as (llm, client):
        client.gate.clear()
        sizes = []
        reading = asyncio.ensure_future(collect(llm, output_kind=DELTA))
        while not reading.done():
            client.allow(1)
            await asyncio.sleep(0)
        sizes = [len(o.outputs[0].token_ids) for o in await reading]
    assert sizes[0] == 1
    assert set(sizes[1:-1]) == {4}
    assert sum(sizes) == 11


async def test_n_choices_interleave_and_join(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, lambda request: f"seed {request.seed} " * 2) as (llm, _):
        texts = {0: "", 1: "", 2: ""}
        order: list[int] = []
        for output in await collect(llm, "a prompt of more than one block", n=3, seed=5, output_kind=DELTA):
            for each in output.outputs:
                texts[each.index] += each.text
                order.append(each.index)
    assert texts == {i: f"seed {5 + i} " * 2 for i in range(3)}
    assert order != sorted(order)


async def test_a_slow_reader_gets_merged_outputs_and_loses_nothing(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, "abcdefghij") as (llm, client):
        stream = await llm.add_request("r", "x", SamplingParams(max_tokens=60, output_kind=DELTA, logprobs=0))
        while client.engine.running:
            await asyncio.sleep(0)
        await llm.wait_for_requests_to_drain(5)
        outputs = [output async for output in stream]
    assert len(outputs) == 1
    assert outputs[0].outputs[0].text == "abcdefghij"
    assert len(outputs[0].outputs[0].logprobs or []) == 11


async def test_leaving_the_loop_aborts_in_the_engine(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, "a" * 50) as (llm, client):
        generator = llm.generate("x", SamplingParams(max_tokens=60, output_kind=DELTA, n=2), "r")
        await anext(generator)
        await generator.aclose()
        assert llm.num_unfinished == 0
        await asyncio.sleep(0)
        assert len(client.engine.aborted) == 2
        assert await llm.wait_for_requests_to_drain(1)


async def test_cancelling_the_reader_aborts_too(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, "a" * 50) as (llm, client):
        client.allow(2)
        task = asyncio.ensure_future(collect(llm, output_kind=FINAL))
        while not client.engine.running or client.gate.is_set():
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert len(client.engine.aborted) == 1


async def test_abort_by_name_ends_the_stream_with_abort(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, "abcdef") as (llm, client):
        client.allow(3)
        reading = asyncio.ensure_future(collect(llm, output_kind=DELTA))
        while client.gate.is_set() or llm.num_unfinished == 0:
            await asyncio.sleep(0)
        await llm.abort("r")
        outputs = await reading
    assert outputs[-1].outputs[0].finish_reason == "abort"
    assert "".join(o.outputs[0].text for o in outputs) == "abcdef"[: sum(len(o.outputs[0].token_ids) for o in outputs)]


async def test_two_requests_of_one_name_do_not_disturb_each_other(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, lambda request: f"seed {request.seed}") as (llm, _):
        first, second = await asyncio.gather(collect(llm, name="same", seed=1), collect(llm, name="same", seed=2))
    assert first[-1].outputs[0].text == "seed 1"
    assert second[-1].outputs[0].text == "seed 2"
    assert first[-1].request_id == second[-1].request_id == "same"


async def test_the_engine_s_death_ends_every_stream_at_once(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, "a" * 50) as (llm, client):
        client.allow(2)
        readers = [asyncio.ensure_future(collect(llm, name=str(i), output_kind=DELTA)) for i in range(3)]
        while client.gate.is_set() or llm.num_unfinished < 3:
            await asyncio.sleep(0)
        client.kill()
        results = await asyncio.gather(*readers, return_exceptions=True)
        assert [type(r) for r in results] == [EngineDeadError] * 3
        assert llm.dead.is_set()
        with pytest.raises(EngineDeadError):
            await llm.check_health()
        with pytest.raises(EngineDeadError):
            await collect(llm)
        assert llm.num_unfinished == 0


async def test_a_failed_request_raises_alone(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, "ok") as (llm, client):
        client.engine.fails = {"bad": "logits hold NaN"}
        good, bad = await asyncio.gather(collect(llm, name="good"), collect(llm, name="bad"), return_exceptions=True)
        assert isinstance(bad, GenerationError)
        assert not isinstance(good, BaseException)
        assert good[-1].outputs[0].text == "ok"


async def test_a_full_queue_refuses_and_counts(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, "a" * 50, max_num_seqs=2, max_num_queued_requests=1) as (llm, client):
        client.gate.clear()
        streams = [await llm.add_request(str(i), "x", SamplingParams()) for i in range(3)]
        with pytest.raises(OverloadedError):
            await llm.add_request("4", "x", SamplingParams())
        await streams[0].aclose()
        streams.append(await llm.add_request("5", "x", SamplingParams()))
        for stream in streams:
            await stream.aclose()
        assert llm.metrics is not None
        assert rejections(llm) == {"max_num_queued_reqs": 1, "max_num_queued_tokens": 0}


async def test_prompt_tokens_that_wait_fill_the_queue_until_their_turn_comes(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, "a" * 50, max_num_queued_tokens=10) as (llm, client):
        client.gate.clear()
        long = await llm.add_request("1", [65] * 40, SamplingParams())  # nothing waits: even a longer one than the queue is let in
        with pytest.raises(OverloadedError, match="40 prompt tokens"):
            await llm.add_request("2", [65], SamplingParams())
        client.allow(1)
        await anext(long)
        streams = [long, await llm.add_request("3", [65] * 3, SamplingParams(n=3, seed=1))]
        with pytest.raises(OverloadedError, match="9 prompt tokens"):
            await llm.add_request("4", [65, 65], SamplingParams())
        streams.append(await llm.add_request("5", [65], SamplingParams()))
        for stream in streams:
            await stream.aclose()
        streams = [await llm.add_request("6", [65] * 5, SamplingParams()) for _ in range(2)]
        for stream in streams:
            await stream.aclose()
        assert rejections(llm) == {"max_num_queued_reqs": 0, "max_num_queued_tokens": 2}


def rejections(llm: AsyncLLM) -> dict[str, float | None]:
    assert llm.metrics is not None
    return {m.labels["reason"]: m.value for m in llm.metrics.snapshot() if m.name.endswith("admission_rejections")}


async def test_a_wrong_request_is_refused_before_anything(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, "a") as (llm, client):
        with pytest.raises(RequestError):
            await collect(llm, [10**6])
        with pytest.raises(RequestError, match="priority"):
            await llm.add_request("r", "x", SamplingParams(), priority=3)
        with pytest.raises(RequestError, match="64 bits"):
            await llm.add_request("r", "x", SamplingParams(), priority=2**63)
        assert client.engine.added == []
        assert llm.num_unfinished == 0


async def test_the_loop_goes_on_while_a_long_text_is_encoded(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, "a") as (llm, _):
        turns = 0
        encoding = asyncio.ensure_future(llm.encode("hello " * 400_000))
        while not encoding.done():
            turns += 1
            await asyncio.sleep(0)
    assert len(encoding.result().token_ids) >= 400_000
    assert turns > 10  # one that encoded on the loop itself would turn once


async def test_beam_search_on_the_scripted_engine(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, "") as (llm, client):
        output = await llm.beam_search("x", BeamSearchParams(beam_width=2, max_tokens=3, ignore_eos=True), "r")
    assert [o.index for o in output.outputs] == [0, 1]
    assert [o.finish_reason for o in output.outputs] == ["length"] * 2
    assert output.outputs[0].cumulative_logprob == pytest.approx(-1.5)
    assert all(r.sampling is not None and r.sampling.logprobs == 4 for r in client.engine.added)


@pytest.mark.parametrize("brought", [{"chat_template": "x"}, {"variables": {"a": 1}}])
async def test_what_a_request_brings_to_a_template_runs_beside_the_loop(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, brought: dict[str, Any]
) -> None:
    loop_goes_on = threading.Event()

    def render(*_: Any, **__: Any) -> EncodedPrompt:
        assert loop_goes_on.wait(5), "the loop waits for the template"
        return EncodedPrompt([65])

    monkeypatch.setattr(async_llm, "render_chat", render)
    async with running(tokenizer, "ok") as (llm, _):
        rendering = asyncio.ensure_future(llm.encode_chat([{"role": "user", "content": "hi"}], **brought))
        await asyncio.sleep(0)
        loop_goes_on.set()
        assert (await rendering).token_ids == [65]
