"""octavo bench latency: one batch, again and again: how long it takes from the first prompt token to the last output token."""

import statistics
import time
from typing import Any

import numpy as np

from octavo import environment, logging
from octavo.bench import engine_side
from octavo.bench.options import LatencyOptions
from octavo.bench.result_file import write_json
from octavo.bench.table import engine_table
from octavo.config.options import Options
from octavo.errors import ConfigError
from octavo.frontend.inputs import Prompt
from octavo.frontend.llm import LLM
from octavo.protocol.sampling_params import BeamSearchParams, SamplingParams

PERCENTILES = (10, 25, 50, 75, 90, 99)
HIGHEST_ID = 10_000  # prompts are drawn from the frequent end of the vocabulary


def latency(options: LatencyOptions, engine: Options) -> int:
    """Prints the mean and the percentiles; the exit code. Prefixes are not cached unless the options say so."""
    if min(options.input_len, options.output_len, options.batch_size, options.num_iters, options.n) < 1:
        raise ConfigError("--input-len, --output-len, --batch-size, --n and --num-iters must be at least 1")
    logging.configure(environment.logging_level(), "bench")
    if engine.enable_prefix_caching is None:
        engine.enable_prefix_caching = False
    with LLM.from_options(engine) as llm:
        prompts = _prompts(options, engine.seed, llm.config.model.vocab_size)
        for _ in range(options.num_iters_warmup):
            _once(llm, prompts, options)
        before = engine_side.from_metrics(llm.get_metrics()) if llm.config.log_stats else None
        seconds = [_once(llm, prompts, options) for _ in range(options.num_iters)]
        after = engine_side.from_metrics(llm.get_metrics()) if llm.config.log_stats else None
        weights = llm.facts.weights_bytes
    _report(options, seconds)
    if before is not None and after is not None:
        print(engine_table(engine_side.rows(after.since(before), sum(seconds), weights)))
    return 0


def _prompts(options: LatencyOptions, seed: int, vocabulary: int) -> list[Prompt]:
    ids = np.random.default_rng(seed).integers(0, min(vocabulary, HIGHEST_ID), (options.batch_size, options.input_len))
    return [{"prompt_token_ids": row} for row in ids.tolist()]


def _once(llm: LLM, prompts: list[Prompt], options: LatencyOptions) -> float:
    start = time.perf_counter()
    if options.use_beam_search:
        llm.beam_search(prompts, BeamSearchParams(beam_width=options.n, max_tokens=options.output_len, ignore_eos=True))
        return time.perf_counter() - start
    params = SamplingParams(
        n=options.n,
        temperature=1.0,
        top_p=1.0,
        ignore_eos=True,
        max_tokens=options.output_len,
        detokenize=not options.disable_detokenize,
    )
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - start
    if failed := [output.error for output in outputs if output.error is not None]:
        raise ConfigError(f"{len(failed)} of {len(outputs)} requests failed: {failed[0]}")
    return seconds


def _report(options: LatencyOptions, seconds: list[float]) -> None:
    mean = statistics.fmean(seconds)
    percentiles = {str(p): float(np.percentile(seconds, p)) for p in PERCENTILES}
    print(f"Avg latency: {mean} seconds")
    for percentile, value in percentiles.items():
        print(f"{percentile}% percentile latency: {value} seconds")
    if options.output_json is not None:
        result: dict[str, Any] = {"avg_latency": mean, "latencies": seconds, "percentiles": percentiles}
        write_json(options.output_json, result)
