"""AsyncLLM over the real engine and the script model: whichever way an answer is taken, it is the same answer."""

import asyncio
import gc
import itertools
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.errors import EngineDeadError, MemoryPlanError, RequestError
from octavo.frontend.async_llm import AsyncLLM
from octavo.protocol.outputs import CompletionOutput, RequestOutput
from octavo.protocol.sampling_params import BeamSearchParams, RequestOutputKind, SamplingParams
from tests.script_model import EOS, write

pytestmark = pytest.mark.asyncio(loop_scope="module")

PIECES: dict[str, list[bytes | str]] = {
    "p": ["plain", " wor", "ds,", " no more"],
    "t": [b"a \xf0\x9f", b"\x98\x80 b", b" \xf0\x9f\x91", b"\xa9\xe2\x80", b"\x8d\xf0\x9f\x92\xbb", b" \xe4\xb8", b"\xad."],
    "x": ["<to", "ol_", "call>{}", "</tool", "_ca", "ll>", " tail"],
    "o": [" tick", " tock", " tack"],
    "e": [b"torn \xf0\x9f"],
}
TEXTS = {
    "p": "plain words, no more",
    "t": "a 😀 b 👩\u200d💻 中.",
    "x": "<tool_call>{}</tool_call> tail",
    "e": "torn \ufffd",
}
KINDS = RequestOutputKind


class Engine:
    """An AsyncLLM whose core and worker are threads of this process."""

    def __init__(self, folder: Path) -> None:
        self.said = write(folder, PIECES, loops="o", context=4096, byte_level=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OCTAVO_ENABLE_V1_MULTIPROCESSING", "0")
            options = Options(
                model=str(folder),
                dtype="float32",
                max_num_seqs=16,
                max_num_batched_tokens=256,
                kv_cache_memory_bytes=8 << 20,
                cpu_threads=1,
            )
            self.llm = AsyncLLM(resolve(options, "server"))

    async def outputs(self, prompt: str, kind: RequestOutputKind = KINDS.DELTA, **params: Any) -> list[RequestOutput]:
        wanted = SamplingParams(**{"temperature": 0.0, "max_tokens": 64, "output_kind": kind, **params})
        return [output async for output in self.llm.generate(prompt, wanted, f"test of {prompt!r}")]

    async def idle(self) -> None:
        """Until the engine has said that nothing runs."""
        metrics = self.llm.metrics
        assert metrics is not None
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        async with asyncio.timeout(10):
            while any(metric.value for metric in metrics.snapshot() if metric.name.removeprefix("vllm:") in names):
                await asyncio.sleep(0.005)
        assert self.llm.num_unfinished == 0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    engine = Engine(tmp_path_factory.mktemp("script"))
    async with engine.llm:
        yield engine
        await engine.idle()
    with pytest.raises(EngineDeadError):
        await engine.outputs("say p")
    gc.collect()  # the worker's memory, before the next module counts


def joined(outputs: list[RequestOutput], index: int = 0) -> CompletionOutput:
    """The deltas of a sequence as one output."""
    parts = [each for output in outputs for each in output.outputs if each.index == index]
    last = parts[-1]
    last.text = "".join(part.text for part in parts)
    last.token_ids = [token for part in parts for token in part.token_ids]
    if last.logprobs is not None:
        last.logprobs = [position for part in parts for position in part.logprobs or []]
    return last


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"logprobs": 2},
        {"max_tokens": 3},
        {"stop": ["l>{", "😀 b", "ds"]},
        {"stop": ["l>{", "😀 b", "ds"], "include_stop_str_in_output": True},
        {"stop": [" more!", "tail?", ".."]},
        {"min_tokens": 8, "max_tokens": 12},
        {"ignore_eos": True, "max_tokens": 9, "skip_special_tokens": False},
        {"detokenize": False},
        {"stream_interval": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize("key", TEXTS)
async def test_three_ways_to_take_an_answer_give_one_answer(engine: Engine, key: str, params: dict[str, Any]) -> None:
    deltas = await engine.outputs(f"say {key}", KINDS.DELTA, **params)
    growing = await engine.outputs(f"say {key}", KINDS.CUMULATIVE, **params)
    (final,) = await engine.outputs(f"say {key}", KINDS.FINAL_ONLY, **params)
    assert joined(deltas) == growing[-1].outputs[0] == final.outputs[0]
    texts = [output.outputs[0].text for output in growing]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert [output.finished for output in deltas] == [False] * (len(deltas) - 1) + [True]


async def test_text_comes_as_soon_as_it_is_certain(engine: Engine) -> None:
    """Deltas that arrive while nobody reads are merged, so what is certain is read off the text that stands at each number of tokens."""
    wanted = {
        1: "a ",
        2: "a 😀 b",
        3: "a 😀 b ",
        4: "a 😀 b 👩",
        5: "a 😀 b 👩\u200d💻",
        6: "a 😀 b 👩\u200d💻 ",
        7: TEXTS["t"],
        8: TEXTS["t"],
    }
    growing = await engine.outputs("say t", KINDS.CUMULATIVE)
    assert {len(o.outputs[0].token_ids): o.outputs[0].text for o in growing}.items() <= wanted.items()
    for length, text in wanted.items():
        (final,) = await engine.outputs("say t", KINDS.FINAL_ONLY, max_tokens=length)
        assert final.outputs[0].text == (text + "\ufffd" if length in (1, 3, 4, 6) else text)


async def test_several_sequences_of_one_stream(engine: Engine) -> None:
    for prompt in ("say z", "z" * 300):
        params = {"n": 3, "temperature": 2.0, "seed": 4, "max_tokens": 11, "logprobs": 1}
        deltas = await engine.outputs(prompt, KINDS.DELTA, **params)
        (final,) = await engine.outputs(prompt, KINDS.FINAL_ONLY, **params)
        assert [joined(deltas, index) for index in range(3)] == final.outputs
        assert len({each.text for each in final.outputs}) == 3


async def test_a_hundred_streams_at_once(engine: Engine) -> None:
    keys = [random.Random(i).choice(list(TEXTS)) for i in range(100)]
    answers = await asyncio.gather(*(engine.outputs("x" * i + key) for i, key in enumerate(keys)))
    assert [joined(outputs).text for outputs in answers] == [TEXTS[key] for key in keys]


async def test_leaving_a_stream_ends_its_request(engine: Engine) -> None:
    endless = SamplingParams(temperature=0, max_tokens=4000, output_kind=KINDS.DELTA)
    streams = [engine.llm.generate(f"{i} o", endless, f"endless {i}") for i in range(5)]
    for stream in streams:
        assert (await anext(stream)).outputs[0].text.startswith(" tick")
    assert engine.llm.num_unfinished == 5
    for stream in streams:
        await stream.aclose()
    await engine.idle()
    assert joined(await engine.outputs("say p")).text == TEXTS["p"]


async def test_a_request_can_be_aborted_by_its_name(engine: Engine) -> None:
    endless = SamplingParams(temperature=0, max_tokens=4000, output_kind=KINDS.CUMULATIVE)
    stream = engine.llm.generate("say o", endless, "by name")
    first = await anext(stream)
    await engine.llm.abort("by name")
    last = [output async for output in stream][-1]
    assert (last.finished, last.outputs[0].finish_reason) == (True, "abort")
    assert last.outputs[0].text.startswith(first.outputs[0].text)
    await engine.llm.abort("by name")
    await engine.idle()


async def test_a_cancelled_task_ends_its_request(engine: Engine) -> None:
    task = asyncio.create_task(engine.outputs("say o", KINDS.FINAL_ONLY, max_tokens=4000))
    async with asyncio.timeout(10):
        while not engine.llm.num_unfinished:
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    await engine.idle()


async def test_beams_are_those_of_the_script(engine: Engine) -> None:
    found = await engine.llm.beam_search("say p", BeamSearchParams(beam_width=3, max_tokens=10), "beams")
    best = found.outputs[0]
    assert (best.text, best.token_ids, best.finish_reason) == (TEXTS["p"], engine.said["p"], "stop")
    assert [each.cumulative_logprob for each in found.outputs] == sorted((e.cumulative_logprob for e in found.outputs), reverse=True)
    await engine.idle()


async def test_a_wrong_request_hurts_nobody_else(engine: Engine) -> None:
    good = asyncio.create_task(engine.outputs("say t"))
    for prompt, params, parameter in (("", {}, "prompt"), ("x", {"logprobs": 50}, "logprobs"), ("x" * 5000, {}, "prompt")):
        with pytest.raises(RequestError) as caught:
            await engine.outputs(prompt, **params)  # type: ignore[arg-type]
        assert caught.value.parameter == parameter
    assert joined(await good).text == TEXTS["t"]


async def test_the_end_token_is_the_last_of_the_ids(engine: Engine) -> None:
    assert joined(await engine.outputs("say p")).token_ids == [*engine.said["p"], EOS]


async def test_an_engine_that_cannot_start_says_so_every_time(engine: Engine) -> None:
    options = Options(
        model=engine.llm.config.model.path, dtype="float32", kv_cache_memory_bytes=1 << 50, distributed_executor_backend="uni"
    )
    llm = AsyncLLM(resolve(options, "server"))
    for _ in range(2):
        with pytest.raises(MemoryPlanError, match="--kv-cache-memory-bytes"):
            await anext(llm.generate("say p", SamplingParams(), "one"))
    await llm.shutdown()
