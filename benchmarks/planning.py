"""What the control plane costs in a step: planning, messages both ways and results, per running request, with an echo for a worker.

    python -m benchmarks.planning [--running 1,64,256,1000] [--waiting 0,100,1000,10000] [--steps 200] [--model FOLDER] [--json FILE]

Nothing is computed: the echo answers every row that samples with one token. Each step is planned, encoded as for the worker's process,
decoded, answered, and the answer encoded, decoded and taken in; the outputs are encoded and decoded as for the front end. Requests have
prompts of 100 tokens, of which a prefix of 32 is shared, and all of them decode in the measured steps. The waiting ones find every row
taken. With a model's folder what the front end does per token is told as well: text, streams, events. Medians over the steps,
of CPU time: nothing here waits, and others may use the machine meanwhile.
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from octavo.config.config import Config
from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.frontend.inputs import EncodedPrompt, InputProcessor
from octavo.frontend.metrics import Metrics
from octavo.frontend.outputs import OutputProcessor
from octavo.frontend.stream import RequestStream
from octavo.kvcache.specs import CachePlan, Group, StateSpec
from octavo.protocol.columns import pack, unpack
from octavo.protocol.messages import EngineFacts, EngineOutput, EngineOutputs, EngineRequest
from octavo.protocol.sampling_params import RequestOutputKind, SamplingParams
from octavo.protocol.step import StepPlan, StepResult, StepTimings
from octavo.scheduler.scheduler import Scheduler
from octavo.server.openai.reply import Completion, CompletionChoice
from octavo.server.sse import event
from octavo.text.tokenizer import Tokenizer

SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 49152,
    "max_position_embeddings": 65536,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PROMPT, SHARED, TOKEN = 100, 32, 1000
LONG = 32_768
Parts = dict[str, list[float]]  # seconds of each step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--running", default="1,64,256,1000")
    parser.add_argument("--waiting", default="0,100,1000,10000", help="beside the largest number that runs")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--blocks", type=int, default=100_000)
    parser.add_argument("--model", type=Path, default=None, help="whose tokenizer makes text of the tokens")
    parser.add_argument("--json", type=Path, default=None, help="a file for all figures")
    wanted = parser.parse_args()
    running, waiting = ([int(word) for word in text.split(",")] for text in (wanted.running, wanted.waiting))
    print(f"load average {os.getloadavg()[0]:.1f}; microseconds per running request and step, medians of {wanted.steps} steps")
    rows = []
    with tempfile.TemporaryDirectory(prefix="octavo-planning-") as folder:
        config = make_config(Path(folder), max(running))
        for count, others in [*((count, 0) for count in running), *((max(running), others) for others in waiting if others)]:
            parts = Bench(config, wanted.blocks).measure(count, others, wanted.steps)
            rows.append({"running": count, "waiting": others, "us": per_request(parts, count)})
            print(line(rows[-1]), flush=True)
        long = Bench(config, wanted.blocks).measure_long_prompt()
        print(f"a prompt of {LONG} tokens: {long * 1e3:.2f} ms from its arrival to the plan of its first step")
    front = None if wanted.model is None else asyncio.run(front_end(wanted.model, wanted.steps))
    if front is not None:
        told = ", ".join(f"{name} {value:.2f}" for name, value in front.items())
        print(f"front end, microseconds per token: {told}; together {sum(front.values()):.2f}")
    if wanted.json is not None:
        figures = {"steps": wanted.steps, "blocks": wanted.blocks, "planning": rows, "long_prompt_s": long, "front_end_us": front}
        wanted.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def make_config(folder: Path, most_running: int) -> Config:
    """As resolve() makes it for `octavo serve` with so many rows."""
    (folder / "config.json").write_text(json.dumps(SHAPE))
    return resolve(
        Options(
            model=str(folder),
            load_format="dummy",
            skip_tokenizer_init=True,
            max_num_seqs=most_running,
            max_num_batched_tokens=max(8192, most_running),
        ),
        "server",
    )


class Bench:
    """A scheduler and an echo."""

    def __init__(self, config: Config, num_blocks: int) -> None:
        spec = StateSpec(kind="full", bytes_per_token=256)
        plan = CachePlan(
            block_size=config.cache.block_size,
            num_blocks=num_blocks,
            block_bytes=256 * config.cache.block_size,
            groups=[Group(spec, ["layers.0"], 256 * config.cache.block_size)],
        )
        self.scheduler = Scheduler(config, plan, hash_seed="0")
        self.parts: Parts = {}
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode_plan = msgspec.msgpack.Decoder(StepPlan).decode
        self._decode_result = msgspec.msgpack.Decoder(StepResult).decode
        self._decode_outputs = msgspec.msgpack.Decoder(EngineOutputs).decode

    def measure(self, running: int, waiting: int, steps: int) -> Parts:
        """All of them decoding, one step planned ahead as in the engine, after a few steps that are not counted."""
        room = steps + 64
        for number in range(running + waiting):
            self.scheduler.add(request(f"r-{number}", number, PROMPT, room))
        plans = [self._plan()]
        while self.scheduler.num_running < running or any(unpack(plans[-1].counts) > 1):
            plans.append(self._plan())
            self._answer(plans.pop(0))
        for turn in range(steps + 8):
            if turn == 8:
                self.parts = {}
                gc.collect()
            plans.append(self._plan())
            self._answer(plans.pop(0))
        assert self.scheduler.num_waiting == waiting
        return self.parts

    def measure_long_prompt(self) -> float:
        """Seconds from the arrival of a prompt to its first plan, with a thousand blocks of it to name: hashed, looked up, allocated."""
        began = time.thread_time()
        self.scheduler.add(request("long", 0, LONG, 8))
        self._plan()
        return time.thread_time() - began

    def _plan(self) -> StepPlan:
        with self._timed("plan"):
            plan = self.scheduler.plan()
        assert plan is not None
        with self._timed("plan to worker"):
            sent = self._encode(plan)
            return self._decode_plan(sent)

    def _answer(self, plan: StepPlan) -> None:
        result = echo(plan)
        with self._timed("result from worker"):
            result = self._decode_result(self._encode(result))
        with self._timed("update"):
            outputs = EngineOutputs(self.scheduler.update(result), self.scheduler.take_stats(), 0.0)
        with self._timed("outputs to front end"):
            self._decode_outputs(self._encode(outputs))

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.thread_time()
        yield
        self.parts.setdefault(name, []).append(time.thread_time() - began)


def request(name: str, number: int, length: int, most: int) -> EngineRequest:
    own = [TOKEN + (number * 7 + place) % 30_000 for place in range(length - SHARED)]
    return EngineRequest(name, pack([*range(TOKEN, TOKEN + SHARED), *own]), SamplingParams(max_tokens=most), arrival_s=0.0)


def echo(plan: StepPlan) -> StepResult:
    samples = unpack(plan.samples)
    tokens = pack([TOKEN] * int(samples.sum()))
    return StepResult(
        plan.step, rows=plan.rows, epochs=plan.epochs, token_counts=plan.samples, tokens=tokens, timings=StepTimings(0.0, 0.1, 0.1, 0.0)
    )


async def front_end(folder: Path, steps: int, clients: int = 32) -> dict[str, float]:
    """Microseconds per token of what follows when a step's outputs have come: text and metrics; the wake of each reader and its event."""
    config = resolve(Options(model=str(folder)), "server")
    tokenizer = Tokenizer.load(str(folder), config.model.renderer)
    facts = EngineFacts(8192, config.cache.block_size, 1000, 32_000, 4.0, 0, 0, 0, 0, 0)
    inputs = InputProcessor(config.model, config.scheduler, tokenizer, facts.max_model_len, config.grammar)
    processor = OutputProcessor(tokenizer, 1, Metrics(config, facts), facts.block_size)
    params = SamplingParams(max_tokens=steps + 8, ignore_eos=True, output_kind=RequestOutputKind.DELTA)
    names, readers = [], []
    for number in range(clients):
        prepared = inputs.prepare(f"r-{number}", EncodedPrompt([TOKEN] * PROMPT, None), params)
        stream = RequestStream(params.output_kind, lambda: None)
        names += [child.request_id for child in processor.add(prepared, stream)]
        readers.append(asyncio.ensure_future(read(stream, prepared.request_id)))
    await asyncio.sleep(0)
    spent: Parts = {"text, metrics": [], "streams, events": []}
    for step in range(steps):
        outputs = [EngineOutput(name, [TOKEN + (step * 31) % 20_000]) for name in names]
        began = time.thread_time()
        processor.process(outputs, time.monotonic())
        halfway = time.thread_time()
        await asyncio.sleep(0)  # every reader has its turn
        await asyncio.sleep(0)
        spent["text, metrics"].append(halfway - began)
        spent["streams, events"].append(time.thread_time() - halfway)
    for reader in readers:
        reader.cancel()
    return {name: statistics.median(seconds) / clients * 1e6 for name, seconds in spent.items()}


async def read(stream: RequestStream, name: str) -> None:
    async for output in stream:
        for new in output.outputs:
            event(Completion(name, 0, "model", [CompletionChoice(index=0, text=new.text)], None))


def per_request(parts: Parts, running: int) -> dict[str, float]:
    """Microseconds per running request, part by part and all together."""
    told = {name: statistics.median(seconds) / running * 1e6 for name, seconds in parts.items()}
    sums: list[Any] = list(zip(*parts.values(), strict=True))
    return {**told, "all": statistics.median(sum(step) for step in sums) / running * 1e6}


def line(row: dict[str, Any]) -> str:
    parts = ", ".join(f"{name} {value:.2f}" for name, value in row["us"].items() if name != "all")
    return f"{row['running']:>6} running {row['waiting']:>6} waiting: {row['us']['all']:>7.2f}  ({parts})"


if __name__ == "__main__":
    sys.exit(main())
