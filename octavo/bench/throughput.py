"""octavo bench throughput: many prompts through one engine in this process tree, as fast as it goes."""

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any

from octavo import environment, logging
from octavo.bench import engine_side
from octavo.bench.options import ThroughputOptions
from octavo.bench.result_file import write_json
from octavo.bench.sample import Sample, draw
from octavo.bench.table import engine_table
from octavo.bench.tokenizer import load as load_tokenizer
from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.errors import ConfigError
from octavo.frontend.async_llm import AsyncLLM
from octavo.frontend.llm import LLM
from octavo.frontend.metrics import Metrics
from octavo.protocol.outputs import RequestOutput
from octavo.protocol.sampling_params import RequestOutputKind, SamplingParams


def throughput(options: ThroughputOptions, engine: Options) -> int:
    """Prints requests and tokens a second; the exit code."""
    logging.configure(environment.logging_level(), "bench")
    _settle(options)
    options.seed = engine.seed
    samples = draw(options, load_tokenizer(engine.tokenizer or engine.model))
    if options.async_engine:
        outputs, seconds, done, weights = asyncio.run(_asynchronous(options, engine, samples))
    else:
        outputs, seconds, done, weights = _synchronous(options, engine, samples)
    _report(options, outputs, seconds)
    if done is not None:
        print(engine_table(engine_side.rows(done, seconds, weights)))
    return 1 if all(output.error is not None for output in outputs) else 0


Measured = tuple[list[RequestOutput], float, engine_side.Counters | None, int]


def _settle(options: ThroughputOptions) -> None:
    """Without a file, lengths ask for random prompts."""
    if options.dataset_name == "sharegpt" and options.dataset_path is None:
        if options.input_len is None:
            raise ConfigError("there is no dataset", "pass --dataset-path, or --input-len and --output-len, or --dataset-name random")
        options.dataset_name = "random"
    if options.dataset_name == "random" and options.prefix_len:
        options.random_prefix_len = options.prefix_len
    if options.backend == "vllm-chat":
        if options.async_engine:
            raise ConfigError("--backend vllm-chat does not go with --async-engine", "leave one of them away")
        options.skip_chat_template = True


def _params(options: ThroughputOptions, sample: Sample) -> SamplingParams:
    return SamplingParams(
        n=options.n,
        temperature=1.0,
        top_p=1.0,
        ignore_eos=True,
        max_tokens=sample.num_output,
        detokenize=not options.disable_detokenize,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _synchronous(options: ThroughputOptions, engine: Options, samples: Sequence[Sample]) -> Measured:
    params = [_params(options, sample) for sample in samples]
    with LLM.from_options(engine) as llm:

        def answers(prompts: Sequence[Sample], use_tqdm: bool) -> list[RequestOutput]:
            if options.backend == "vllm-chat":
                conversations = [[{"role": "user", "content": sample.prompt}] for sample in prompts]
                return llm.chat(conversations, params[: len(prompts)], use_tqdm=use_tqdm)
            return llm.generate([sample.prompt for sample in prompts], params[: len(prompts)], use_tqdm=use_tqdm)

        if options.num_warmups:
            answers(samples[: options.num_warmups], False)
        before = _counters(llm)
        start = time.perf_counter()
        outputs = answers(samples, True)
        seconds = time.perf_counter() - start
        after = _counters(llm)
        return outputs, seconds, None if before is None or after is None else after.since(before), llm.facts.weights_bytes


def _counters(llm: LLM) -> engine_side.Counters | None:
    return engine_side.from_metrics(llm.get_metrics()) if llm.config.log_stats else None


async def _asynchronous(options: ThroughputOptions, engine: Options, samples: Sequence[Sample]) -> Measured:
    async with AsyncLLM(await asyncio.to_thread(resolve, engine, "llm")) as llm:

        async def answer(name: str, sample: Sample) -> RequestOutput:
            last: RequestOutput | None = None
            async for output in llm.generate(sample.prompt, _params(options, sample), name):
                last = output
            assert last is not None
            return last

        await asyncio.gather(*(answer(f"warmup-{i}", sample) for i, sample in enumerate(samples[: options.num_warmups])))
        before = _async_counters(llm.metrics)
        start = time.perf_counter()
        outputs = await asyncio.gather(*(answer(str(i), sample) for i, sample in enumerate(samples)))
        seconds = time.perf_counter() - start
        after = _async_counters(llm.metrics)
        return list(outputs), seconds, None if before is None or after is None else after.since(before), llm.facts.weights_bytes


def _async_counters(metrics: Metrics | None) -> engine_side.Counters | None:
    return None if metrics is None else engine_side.from_metrics(metrics.snapshot())


def _report(options: ThroughputOptions, outputs: Sequence[RequestOutput], seconds: float) -> None:
    good = [output for output in outputs if output.error is None]
    if len(good) < len(outputs):
        print(f"{len(outputs) - len(good)} of {len(outputs)} requests failed", file=sys.stderr)
    num_prompt = sum(len(output.prompt_token_ids or ()) for output in good)
    num_output = sum(len(each.token_ids) for output in good for each in output.outputs)
    requests, total, generated = len(good) / seconds, (num_prompt + num_output) / seconds, num_output / seconds
    print(f"Throughput: {requests:.2f} requests/s, {total:.2f} total tokens/s, {generated:.2f} output tokens/s")
    print(f"Total num prompt tokens:  {num_prompt}")
    print(f"Total num output tokens:  {num_output}")
    if options.output_json is not None:
        result: dict[str, Any] = {
            "elapsed_time": seconds,
            "num_requests": len(good),
            "total_num_tokens": num_prompt + num_output,
            "requests_per_second": requests,
            "tokens_per_second": total,
        }
        write_json(options.output_json, result)
