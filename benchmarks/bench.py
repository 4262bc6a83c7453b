"""make bench: decode and prefill of the small real model, octavo and transformers in one run, turn by turn, beside the machine's limits.

usage: python -m benchmarks.bench [--model smollm2] [--rounds 5] [--dtype bfloat16] [--json FILE]
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

os.environ.setdefault("GOMP_SPINCOUNT", "5000")  # as in octavo's own processes: while one engine works, the other's threads sleep
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

from benchmarks import limits, workload
from octavo import LLM, SamplingParams, __version__

DECODE = 64


@dataclass
class Limits:
    read_gb_s: float
    product_gflop_s: float


@dataclass
class Sizes:
    weights_bytes: int
    parameters: int
    embedding: int  # parameters that a prompt's tokens look up instead of multiplying


class Engine(Protocol):
    name: str

    def run(self, prompt: list[int], count: int) -> float:
        """Seconds to generate `count` tokens after `prompt`, greedy, whatever ends a text ignored."""
        ...


class Octavo:
    name = "octavo"

    def __init__(self, model: str, dtype: str) -> None:
        self.llm = LLM(model=model, dtype=dtype, enable_prefix_caching=False, kv_cache_memory_bytes=1 << 30, max_num_batched_tokens=2048)

    def run(self, prompt: list[int], count: int) -> float:
        params = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True, detokenize=False)
        start = time.perf_counter()
        (output,) = self.llm.generate({"prompt_token_ids": prompt}, params, use_tqdm=False)
        assert len(output.outputs[0].token_ids) == count
        return time.perf_counter() - start


class Transformers:
    name = "transformers"

    def __init__(self, model: str, dtype: str) -> None:
        from transformers import AutoModelForCausalLM

        path = Path(model)
        where: dict[str, Any] = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
        self.model = AutoModelForCausalLM.from_pretrained(path.parent if where else path, dtype=getattr(torch, dtype), **where).eval()
        self.model.generation_config.eos_token_id = None
        self.model.generation_config.pad_token_id = 0

    def run(self, prompt: list[int], count: int) -> float:
        ids = torch.tensor([prompt])
        start = time.perf_counter()
        with torch.inference_mode():
            out = self.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=False,
                eos_token_id=None,
            )
        assert out.shape[1] == len(prompt) + count
        return time.perf_counter() - start


def measure(engine: Engine, round_number: int) -> dict[str, float]:
    """One round: decode tokens/s with a short context, prefill tokens/s of 512 and 2,048."""
    prompt = workload.single(32, round_number)
    first = engine.run(prompt, 1)
    figures = {"decode": (DECODE - 1) / (engine.run(prompt, DECODE) - first)}
    for length in (512, 2048):
        figures[f"prefill_{length}"] = length / engine.run(workload.single(length, 100 * round_number), 1)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    from octavo.checkpoint import source

    path = str(source.resolve(args.model).path)
    limit = Limits(limits.read_gb_s(), limits.product_gflop_s(getattr(torch, args.dtype)))
    ours, theirs = Octavo(path, args.dtype), Transformers(path, args.dtype)
    engines: list[Engine] = [ours, theirs]
    for engine in engines:
        measure(engine, 0)
    rounds: dict[str, list[dict[str, float]]] = {e.name: [] for e in engines}
    for number in range(1, args.rounds + 1):
        for engine in engines:
            rounds[engine.name].append(measure(engine, number))
            print(f"round {number} {engine.name}", {k: round(v, 1) for k, v in rounds[engine.name][-1].items()}, file=sys.stderr)
    parameters = sum(p.numel() for p in theirs.model.parameters())
    embedding = theirs.model.get_input_embeddings().weight.numel()
    report(args, rounds, limit, Sizes(ours.llm.facts.weights_bytes, parameters, embedding))
    return 0


def report(args: argparse.Namespace, rounds: dict[str, list[dict[str, float]]], limit: Limits, model: Sizes) -> None:
    """Medians, ratios, and each as a share of the machine's limit in this run."""
    machine = platform.processor() or platform.machine()
    print(f"octavo {__version__}, {args.model}, {args.dtype}, {torch.get_num_threads()} threads, {machine}")
    print(f"limits in this run: reading {limit.read_gb_s:.1f} GB/s, products {limit.product_gflop_s:.0f} GFLOP/s")
    print(f"weights {model.weights_bytes / 1e6:.0f} MB, {model.parameters / 1e6:.1f} M parameters")
    print("\n| figure | octavo | transformers | ratio (range) | octavo achieves | share of the limit |")
    print("|---|---|---|---|---|---|")
    record: dict[str, Any] = {"limits": vars(limit), "model": vars(model), "rounds": rounds}
    for key in ("decode", "prefill_512", "prefill_2048"):
        ours, theirs = [r[key] for r in rounds["octavo"]], [r[key] for r in rounds["transformers"]]
        ratios = [a / b for a, b in zip(ours, theirs)]
        own, other, ratio = statistics.median(ours), statistics.median(theirs), statistics.median(ratios)
        if key == "decode":
            achieved, share, unit = own * model.weights_bytes / 1e9, limit.read_gb_s, "GB/s"
        else:
            # attention's own products are not counted, so a long prompt achieves more than is said
            achieved, share, unit = own * 2 * (model.parameters - model.embedding) / 1e9, limit.product_gflop_s, "GFLOP/s"
        span = f"{ratio:.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        print(f"| {key} tokens/s | {own:.1f} | {other:.1f} | {span} | {achieved:.1f} {unit} | {100 * achieved / share:.0f} % |")
        record[key] = {"octavo": own, "transformers": other, "ratio": ratio}
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    sys.exit(main())
