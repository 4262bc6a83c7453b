"""Roofs: the bytes a second and products a second that this machine reaches now, each by the best of torch's ways and our own loops."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from octavo.device import memory
from octavo.ops import linear
from octavo.ops.op import choose
from octavo.worker import read_loop

READ_BYTES = 512 << 20
ROWS, OUTPUTS, INPUTS = 512, 2048, 2048  # of a product
SECONDS = 0.4  # for each way

Call = Callable[[], object]


def read_gb_s(seconds: float = SECONDS) -> dict[str, float]:
    """GB/s of reading a buffer in private huge pages that no cache holds, by each way."""
    buffer = memory.allocate(READ_BYTES)
    words = buffer.view(torch.int64)
    buffer.view(torch.float32).fill_(1)  # no denormal numbers: some CPUs add them slowly
    ways: dict[str, Call] = {"torch sum": words.sum, "torch sum of float32": buffer.view(torch.float32).sum}
    for runs in read_loop.RUNS:
        ways[f"own loop, {runs} runs"] = read_loop.reader(buffer, runs)
    return {name: READ_BYTES / median_s(call, seconds) / 1e9 for name, call in ways.items()}


def products_g_s(kind: str, seconds: float = SECONDS) -> dict[str, float]:
    """GFLOP/s, or GOP/s, of products of that kind ("bf16", "int8", "fp32") by each way that this torch and this CPU have."""
    operations = 2 * ROWS * OUTPUTS * INPUTS
    return {name: operations / median_s(call, seconds) / 1e9 for name, call in _ways(kind)}


def median_s(call: Call, seconds: float) -> float:
    """The median time of a call that is repeated for about `seconds`, at least 7 times."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 7 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _ways(kind: str) -> Iterator[tuple[str, Call]]:
    """Each way that works here: what a build of torch lacks is no way."""
    torch.manual_seed(0)
    ways = {"bf16": _float_ways, "fp32": _float_ways, "int8": _int8_ways}[kind](torch.float32 if kind == "fp32" else torch.bfloat16)
    for name, make in ways:
        try:
            call = make()
            call()
        except (RuntimeError, AttributeError, NotImplementedError):
            continue
        yield name, call


def _float_ways(dtype: torch.dtype) -> Iterator[tuple[str, Callable[[], Call]]]:
    x, weight = torch.randn(ROWS, INPUTS).to(dtype), torch.randn(OUTPUTS, INPUTS).to(dtype)

    def prepacked() -> Call:
        ops: Any = torch.ops.mkldnn
        packed = ops._reorder_linear_weight(weight, ROWS)
        return lambda: ops._linear_pointwise(x, packed, None, "none", [], "")

    yield "torch linear", lambda: lambda: torch.nn.functional.linear(x, weight)
    yield "oneDNN, prepacked", prepacked
    yield "own tile", lambda: _own(linear.Facts(in_features=INPUTS, out_features=OUTPUTS, dtype=dtype), x, weight)


def _int8_ways(dtype: torch.dtype) -> Iterator[tuple[str, Callable[[], Call]]]:
    codes = torch.randint(-100, 100, (OUTPUTS, INPUTS), dtype=torch.int8)
    x = torch.randn(ROWS, INPUTS).to(dtype)

    def matrix_product() -> Call:
        left, right = torch.randint(-100, 100, (ROWS, INPUTS), dtype=torch.int8), codes.t()
        return lambda: torch._int_mm(left, right)

    def quantized() -> Call:
        ops: Any = torch.ops.onednn
        packed = ops.qlinear_prepack(codes, [ROWS, INPUTS])
        scales, zeros = torch.full((OUTPUTS,), 0.01), torch.zeros(OUTPUTS, dtype=torch.long)
        left = torch.randint(0, 255, (ROWS, INPUTS), dtype=torch.uint8)
        return lambda: ops.qlinear_pointwise(left, 0.01, 128, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], "")

    facts = linear.Facts(in_features=INPUTS, out_features=OUTPUTS, dtype=dtype, layout=linear.INT8, activation="int8_token")
    yield "torch _int_mm", matrix_product
    yield "oneDNN qlinear", quantized
    yield "own tile, activations coded from bfloat16", lambda: _own(facts, x, (codes, torch.full((OUTPUTS,), 0.01)))


def _own(facts: linear.Facts, x: torch.Tensor, weight: Any) -> Call:
    chosen = choose("linear", facts)
    packed = chosen.implementation.pack(weight, facts)
    out = torch.empty(ROWS, OUTPUTS, dtype=facts.result)
    return lambda: chosen.implementation(out, x, packed)
