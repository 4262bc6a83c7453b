"""Calibration runs: octavo itself runs models made for the purpose, with numbers drawn at random, and the time of its steps is noted."""

import dataclasses
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from octavo.config.config import Config
from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.engine.client import EngineClient
from octavo.errors import OctavoError
from octavo.planning import work
from octavo.planning.calibrate_terms import TOKENS, Ran
from octavo.planning.ranks import build_ranks
from octavo.planning.topology import Topology
from octavo.planning.work import Work
from octavo.protocol.messages import EngineOutputs, EngineRequest
from octavo.protocol.sampling_params import SamplingParams

ROWS = TOKENS[:4]
_STEPS = 12  # measured of each kind; the median counts
_SHORT = 16  # tokens of a prompt where they are not the matter
_LONG = 1024
_HEAD = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "tie_word_embeddings": True}

# one part of a step is large in each: weights, layers, logits
SHAPES: dict[str, dict[str, int]] = {
    "wide": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 8, "vocab_size": 1024},
    "deep": {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 24, "vocab_size": 1024},
    "wordy": {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 131072},
}


class Bench:
    """An engine that runs, and how long its steps take."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.work: Work = work.of(config, build_ranks(config, Topology())[0], Topology())
        self._client = EngineClient()
        self._client.start(config)
        self._random = np.random.default_rng(0)
        self._count = 0

    def decode(self, rows: int, prompt: int = _SHORT, steps: int = _STEPS) -> Ran:
        """A token for each of so many requests, whose prompts are so long."""
        # requests start one behind the other when their prompts do not fit into a step together
        start = -(-rows * prompt // self.config.scheduler.max_num_batched_tokens)
        batches = self._run(rows, prompt, start + steps + 2)
        seconds = [
            after.time_s - before.time_s
            for before, after in itertools.pairwise(batches)
            if len(before.outputs) == rows == len(after.outputs) and all(output.token_ids for output in before.outputs)
        ]
        return Ran(work=self.work, tokens=rows, rows=rows, context=prompt + start + steps / 2, seconds=_median(seconds[1:]))

    def prefill(self, steps: int = _STEPS) -> Ran:
        """Prompts that fill a step each, one behind the other."""
        prompt = self.config.scheduler.max_num_batched_tokens
        began = [output.time_s for output in self._run(steps, prompt, 1, at_a_time=1) if output.outputs]
        seconds = [after - before for before, after in itertools.pairwise(began)]
        return Ran(work=self.work, tokens=prompt, rows=1, context=prompt / 2, seconds=_median(seconds))

    def close(self) -> None:
        self._client.shutdown()

    def _run(self, count: int, prompt: int, output: int, at_a_time: int | None = None) -> list[EngineOutputs]:
        """Outputs in their order, until all requests are done. at_a_time: how many requests there are at once."""
        waiting = [self._request(prompt, output) for _ in range(count)]
        open_requests = 0
        found = []
        limit = time.monotonic() + 300.0
        while waiting or open_requests:
            while waiting and (at_a_time is None or open_requests <= at_a_time):
                self._client.add(waiting.pop())
                open_requests += 1
            outputs = self._client.outputs(limit - time.monotonic())
            if outputs is None:
                raise OctavoError("the engine did not answer within 5 minutes", "calibrate when the machine is idle")
            if outputs.outputs:
                found.append(outputs)
                open_requests -= sum(1 for each in outputs.outputs if each.finish_reason is not None)
        return found

    def _request(self, prompt: int, output: int) -> EngineRequest:
        self._count += 1
        tokens = self._random.integers(3, self.config.model.vocab_size, prompt, dtype=np.int32)
        sampling = SamplingParams(temperature=1.0, ignore_eos=True, max_tokens=output, detokenize=False)
        return EngineRequest(str(self._count), tokens.tobytes(), sampling, time.monotonic(), seed=self._count)


def _median(seconds: list[float]) -> float:
    """Raises OctavoError where no two steps followed each other with every request in both."""
    if not seconds:
        raise OctavoError("the engine did not run its requests side by side, so no step could be measured", "leave the cache its size")
    return statistics.median(seconds)


@contextmanager
def running(options: Options) -> Iterator[Bench]:
    """An engine of the model that the options name."""
    bench = Bench(resolve(options, "llm"))
    try:
        yield bench
    finally:
        bench.close()


def measure(shape: dict[str, Any], options: Options) -> list[Ran]:
    """Steps of a llama with these sizes: decoding at each number of rows and with a long context, and prompts."""
    with tempfile.TemporaryDirectory(prefix="octavo-calibrate-") as folder:
        write(Path(folder), shape)
        with running(settings(options, model=folder, load_format="dummy")) as bench:
            found = steps(bench)
            if shape["hidden_size"] < _LONG:
                found.append(bench.decode(8, _LONG))
            return found


def steps(bench: Bench) -> list[Ran]:
    """Decoding at each number of rows, and prompts."""
    bench.decode(1, steps=4)  # kernels are compiled or fetched by now
    return [*(bench.decode(rows) for rows in ROWS), bench.prefill()]


def settings(options: Options, **model: Any) -> Options:
    """Those of a run; of the user's, what decides which kernels run. model: the options that name it."""
    return dataclasses.replace(
        options,
        skip_tokenizer_init=True,
        max_model_len=2 * _LONG,
        max_num_seqs=ROWS[-1],
        max_num_batched_tokens=TOKENS[-1],
        enable_prefix_caching=False,
        kv_cache_memory_bytes=256 << 20,
        disable_log_stats=True,
        **model,
    )


def write(folder: Path, shape: dict[str, Any]) -> None:
    heads = shape["hidden_size"] // 64
    sizes = {
        "num_attention_heads": heads,
        "num_key_value_heads": max(1, heads // 4),
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "max_position_embeddings": 2 * _LONG,
    }
    (folder / "config.json").write_text(json.dumps(_HEAD | sizes | shape))
