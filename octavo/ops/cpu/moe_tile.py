"""The experts of a mixture by the register tile: tokens are gathered by expert, so that its weights are read once for all of them.

A token's result is the same bits in any company: tiles keep rows apart, and its experts are added up in its own order of choice.
"""

import torch

from octavo.ops.cpu import compile, features, panels, pool, tile, vectors
from octavo.ops.moe_experts import Facts

_CHUNK = 1024  # tokens taken at once, which bounds the scratch
_BLOCK = 64  # gathered rows whose gate and up are held on a thread's stack


def _layout(facts: Facts, num_tokens: int) -> tuple[list[int], int]:
    """Offsets of the parts of the scratch and its size: starts, cursors [experts + 1], places, sources [pairs], x, activated, results."""
    tokens = min(num_tokens, _CHUNK)
    pairs, item = tokens * facts.top_k, facts.dtype.itemsize
    sizes = [(facts.num_experts + 1) * 8] * 2 + [pairs * 8] * 2
    sizes += [pairs * facts.hidden * item, pairs * facts.intermediate * item, pairs * facts.hidden * 4]
    offsets, top = [], 0
    for size in sizes:
        offsets.append(top)
        top += -(-size // 64) * 64
    return offsets, top


# arguments of every kernel below: 0 out, 1 out stride, 2 x, 3 x stride, 4 ids, 5 weights, 6 gate_up, 7 down, 8 tokens, 9 experts, 10 top_k,
# 11 hidden, 12 intermediate, 13 starts, 14 cursors, 15 places, 16 sources, 17 gathered x, 18 activated, 19 results
_NUM_ARGUMENTS = 20


def build_group():
    """One unit: pairs (token, choice) sorted by expert, in order of token. places[pair] = gathered row, sources[row] = pair."""
    int64s, int32s = vectors.int64s, vectors.int32s

    def group(begin, end, arguments):
        a = int64s(arguments)
        ids, pairs, experts = int32s(a[4]), a[8] * a[10], a[9]
        starts, cursors, places, sources = int64s(a[13]), int64s(a[14]), int64s(a[15]), int64s(a[16])
        for expert in range(experts + 1):
            starts[expert] = 0
        for pair in range(pairs):
            starts[min(max(ids[pair], 0), experts - 1) + 1] += 1
        for expert in range(experts):
            starts[expert + 1] += starts[expert]
            cursors[expert] = starts[expert]
        for pair in range(pairs):
            expert = min(max(ids[pair], 0), experts - 1)
            row = cursors[expert]
            cursors[expert] = row + 1
            places[pair], sources[row] = row, pair

    return group


def build_gather(dtype, lanes):
    """Units are gathered rows: each gets a copy of its token's x."""
    load, store, size = vectors.load(dtype, lanes), vectors.store(dtype, lanes), vectors.SIZES[dtype]
    load_part, store_part, int64s = vectors.load_part(dtype, lanes), vectors.store_part(dtype, lanes), vectors.int64s

    def gather(begin, end, arguments):
        a = int64s(arguments)
        top_k, hidden, sources = a[10], a[11], int64s(a[16])
        for row in range(begin, end):
            source, target = a[2] + sources[row] // top_k * a[3], a[17] + row * hidden * size
            i = 0
            while i + lanes <= hidden:
                store(target + i * size, load(source + i * size))
                i += lanes
            store_part(target + i * size, load_part(source + i * size, hidden - i), hidden - i)

    return gather


def build_gate_up(dtype, lanes, most_panels):
    """Units are panels of gate, each with the same of up: act(gate x) * up x of every gathered row, rounded to dtype."""
    product = tile.product(dtype, "float32", False)
    width = most_panels * lanes
    stack, size, int64s = vectors.stack(2 * _BLOCK * width * 4), vectors.SIZES[dtype], vectors.int64s
    load, store, store_part = vectors.load("float32", lanes), vectors.store(dtype, lanes), vectors.store_part(dtype, lanes)
    exp, splat, single = vectors.exp, vectors.splat(lanes), vectors.single
    block, stride, in_step, zero = _BLOCK, width * 4, 4 // vectors.SIZES[dtype], vectors.single(0.0)

    def gate_up(begin, end, arguments):
        a = int64s(arguments)
        weight, experts, hidden, intermediate, starts = a[6], a[9], a[11], a[12], int64s(a[13])
        half = (intermediate + lanes - 1) // lanes * ((hidden + in_step - 1) // in_step) * lanes * 4  # bytes of gate, of up
        gates = stack()
        ups = gates + block * stride
        one, nothing = splat(single(1.0)), splat(zero)
        for expert in range(experts):
            gate_panels = weight + expert * 2 * half
            first = begin
            while first < end:
                last = min(end, first + most_panels)
                columns = min((last - first) * lanes, intermediate - first * lanes)
                row = starts[expert]
                while row < starts[expert + 1]:
                    rows = min(block, starts[expert + 1] - row)
                    x, shift = a[17] + row * hidden * size, first * lanes * 4  # the product counts columns from panel 0
                    product(x, hidden * size, gate_panels, gates - shift, stride, 0, rows, intermediate, hidden, first, last)
                    product(x, hidden * size, gate_panels + half, ups - shift, stride, 0, rows, intermediate, hidden, first, last)
                    for r in range(rows):
                        target = a[18] + ((row + r) * intermediate + first * lanes) * size
                        i = 0
                        while i < columns:
                            gate = load(gates + r * stride + i * 4)
                            value = gate / (one + exp(nothing - gate)) * load(ups + r * stride + i * 4)
                            if i + lanes <= columns:
                                store(target + i * size, value)
                            else:
                                store_part(target + i * size, value, columns - i)
                            i += lanes
                    row += rows
                first = last

    return gate_up


def build_down(dtype, lanes):
    """Units are panels of down: the float32 result of every gathered row."""
    product, size, int64s = tile.product(dtype, "float32", False), vectors.SIZES[dtype], vectors.int64s
    block, in_step = _BLOCK, 4 // vectors.SIZES[dtype]

    def down(begin, end, arguments):
        a = int64s(arguments)
        weight, experts, hidden, intermediate, starts = a[7], a[9], a[11], a[12], int64s(a[13])
        whole = (hidden + lanes - 1) // lanes * ((intermediate + in_step - 1) // in_step) * lanes * 4
        for expert in range(experts):
            row = starts[expert]
            while row < starts[expert + 1]:
                rows = min(block, starts[expert + 1] - row)
                x, out = a[18] + row * intermediate * size, a[19] + row * hidden * 4
                product(x, intermediate * size, weight + expert * whole, out, hidden * 4, 0, rows, hidden, intermediate, begin, end)
                row += rows

    return down


def build_add(dtype, lanes):
    """Units are tokens: their experts' results, weighted, in the order of choice."""
    load, load_part, splat = vectors.load("float32", lanes), vectors.load_part("float32", lanes), vectors.splat(lanes)
    store, store_part, size = vectors.store(dtype, lanes), vectors.store_part(dtype, lanes), vectors.SIZES[dtype]
    int64s, floats, fma, zero = vectors.int64s, vectors.floats, vectors.fma, vectors.single(0.0)

    def add(begin, end, arguments):
        a = int64s(arguments)
        top_k, hidden, places, results = a[10], a[11], int64s(a[15]), a[19]
        for token in range(begin, end):
            weights, target = floats(a[5] + token * top_k * 4), a[0] + token * a[1]
            i = 0
            while i < hidden:
                total = splat(zero)
                for choice in range(top_k):
                    address = results + (places[token * top_k + choice] * hidden + i) * 4
                    value = load(address) if i + lanes <= hidden else load_part(address, hidden - i)
                    total = fma(value, splat(weights[choice]), total)
                if i + lanes <= hidden:
                    store(target + i * size, total)
                else:
                    store_part(target + i * size, total, hidden - i)
                i += lanes

    return add


class Implementation:
    """See the reference. Large batches are taken in chunks of tokens; the scratch is for one chunk."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        dtype, lanes = str(facts.dtype)[6:], features.lanes()
        _, self._most_panels = tile.largest(dtype)
        self._group = compile.kernel(build_group)
        self._gather = compile.kernel(build_gather, dtype, lanes)
        self._gate_up = compile.kernel(build_gate_up, dtype, lanes, self._most_panels)
        self._down = compile.kernel(build_down, dtype, lanes)
        self._add = compile.kernel(build_add, dtype, lanes)
        self._arguments = pool.Arguments(_NUM_ARGUMENTS)
        self._panels = [-(-width // lanes) for width in (facts.intermediate, facts.hidden)]

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        if facts.dtype not in (torch.float32, torch.bfloat16):
            return f"dtype {str(facts.dtype)[6:]} is neither float32 nor bfloat16"
        return None if facts.activation == "silu" else f"activation {facts.activation} is not silu"

    @staticmethod
    def pack(weight: torch.Tensor, facts: Facts) -> torch.Tensor:
        """gate_up and down are told apart by their shapes."""
        if weight.shape[1:] == (2 * facts.intermediate, facts.hidden):
            weight = weight.unflatten(1, (2, facts.intermediate)).flatten(0, 1)  # gate and up each begin a panel
        return panels.pack(weight)

    @staticmethod
    def scratch_size(facts: Facts, num_tokens: int) -> int:
        return _layout(facts, num_tokens)[1]

    def __call__(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        scratch: torch.Tensor,
    ) -> None:
        facts, arguments = self.facts, self._arguments
        item, tokens = facts.dtype.itemsize, x.shape[0]
        offsets, _ = _layout(facts, tokens)
        base = scratch.data_ptr()
        for start in range(0, tokens, _CHUNK):
            count = min(_CHUNK, tokens - start)
            arguments.set(
                out.data_ptr() + start * out.stride(0) * item,
                out.stride(0) * item,
                x.data_ptr() + start * x.stride(0) * item,
                x.stride(0) * item,
                ids.data_ptr() + start * facts.top_k * 4,
                weights.data_ptr() + start * facts.top_k * 4,
                gate_up.data_ptr(),
                down.data_ptr(),
                count,
                facts.num_experts,
                facts.top_k,
                facts.hidden,
                facts.intermediate,
                *(base + offset for offset in offsets),
            )
            self._group(1, 1, arguments)
            self._gather(count * facts.top_k, 16, arguments)
            self._gate_up(self._panels[0], self._most_panels, arguments)
            self._down(self._panels[1], self._most_panels, arguments)
            self._add(count, 4, arguments)
