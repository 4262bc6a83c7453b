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
from pathlib import Path
from typing import Any, Protocol

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # the two engines take turns: neither may spin while the other works
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

from benchmarks import limits, workload
from octavo import LLM, SamplingParams, __version__

DECODE = 64


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
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count, do_sample=False, eos_token_id=None
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
    read, product = limits.read_gb_s(), limits.product_gflop_s(getattr(torch, args.dtype))
    engines: list[Engine] = [Octavo(path, args.dtype), Transformers(path, args.dtype)]
    facts = engines[0].llm.facts  # type: ignore[attr-defined]
    parameters = sum(p.numel() for p in engines[1].model.parameters())  # type: ignore[attr-defined]
    for engine in engines:
        measure(engine, 0)
    rounds: dict[str, list[dict[str, float]]] = {e.name: [] for e in engines}
    for number in range(1, args.rounds + 1):
        for engine in engines:
            rounds[engine.name].append(measure(engine, number))
            print(f"round {number} {engine.name}", {k: round(v, 1) for k, v in rounds[engine.name][-1].items()}, file=sys.stderr)
    report(args, rounds, read, product, facts.weights_bytes, parameters)
    return 0


def report(args: argparse.Namespace, rounds: dict[str, list[dict[str, float]]], read: float, product: float, weights: int, parameters: int) -> None:
    """Medians, ratios, and each as a share of the machine's limit in this run."""
    print(f"octavo {__version__}, {args.model}, {args.dtype}, {torch.get_num_threads()} threads, {platform.processor() or platform.machine()}")
    print(f"limits in this run: reading {read:.1f} GB/s, products {product:.0f} GFLOP/s; weights {weights / 1e6:.0f} MB, {parameters / 1e6:.1f} M parameters")
    print(f"\n| figure | octavo | transformers | ratio (range) | octavo achieves | share of the limit |\n|{'---|' * 6}")
    record: dict[str, Any] = {"limits": {"read_gb_s": read, "product_gflop_s": product}, "rounds": rounds}
    for key in ("decode", "prefill_512", "prefill_2048"):
        ours, theirs = [r[key] for r in rounds["octavo"]], [r[key] for r in rounds["transformers"]]
        ratios = [a / b for a, b in zip(ours, theirs)]
        median = statistics.median(ours)
        if key == "decode":
            achieved, limit, unit = median * weights / 1e9, read, "GB/s"
        else:
            achieved, limit, unit = median * 2 * parameters / 1e9, product, "GFLOP/s"
        print(
            f"| {key} tokens/s | {median:.1f} | {statistics.median(theirs):.1f} | {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) |"
            f" {achieved:.1f} {unit} | {100 * achieved / limit:.0f} % |"
        )
        record[key] = {"octavo": median, "transformers": statistics.median(theirs), "ratio": statistics.median(ratios)}
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    sys.exit(main())
