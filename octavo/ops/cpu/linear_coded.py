"""Linear with a coded weight in panels, for bf16 inputs: codes are looked up as the product goes, at memory's speed for a single row.

The weight's numbers are not rounded: codes are multiplied, and sums are scaled. Bits do not depend on how many rows there are.
"""

import torch

from octavo.ops.cpu import coded_panels, coded_tile, compile, features, pool, vectors
from octavo.ops.linear import Facts
from octavo.ops.weights import Layout, Tensors

# arguments before the planes': 0 x, 1 x stride, 2 out, 3 out stride, 4 bias, 5 rows of x, 6 columns of out, 7 depth, 8 panels, 9 groups,
# 10 rows of a block, 11 slots, 12 scratch, 13 bytes of a slot's scratch, 14 of which for decoded panels
_FIRST = 15
_BLOCK_BYTES = 512 * 1024  # of rows of x that stay in a core's second-level cache while the panels pass
_LEAST_BLOCK = 128
_MOST_GROUPS = 4096  # of a row whose sums a single row's kernel keeps on the stack


def build_alone(recipe, out_dtype):
    """Units are panels; one row of x."""
    int64s, first, most, lanes, size = vectors.int64s, _FIRST, coded_tile.MOST_ALONE, coded_panels.LANES, vectors.SIZES[out_dtype]
    wide, slim = (coded_tile.tile(recipe, 1, count, out_dtype) for count in (most, 1))
    has_minimum, space, add_up = bool(recipe.minimum), vectors.stack(_MOST_GROUPS * 4 if recipe.minimum else 64), _sums()

    def panels(begin, end, arguments):
        a = int64s(arguments)
        x, depth, n = a[0], a[7], a[6]
        sums = space()
        if has_minimum:
            add_up(x, sums, depth, a[9])
        panel = begin
        while panel < end:
            column = panel * lanes
            out, bias = a[2] + column * size, a[4] + column * 2 if a[4] else 0
            if panel + most <= end:
                wide(arguments, first, panel, 0, x, 0, sums, 0, depth, out, 0, bias, n - column)
                panel += most
            else:
                slim(arguments, first, panel, 0, x, 0, sums, 0, depth, out, 0, bias, n - column)
                panel += 1

    return panels


def build(recipe, out_dtype):
    """Units are slots: each takes its share of the panels, for one block of rows after the other, with a scratch of its own."""
    int64s, first, product, pair = vectors.int64s, _FIRST, coded_tile.product(recipe, out_dtype), coded_tile.PANELS
    has_minimum, add_up = bool(recipe.minimum), _sums()

    def slots(begin, end, arguments):
        a = int64s(arguments)
        rows, n, depth, groups, block = a[5], a[6], a[7], a[9], a[10]
        pairs, sums_stride = (a[8] + pair - 1) // pair, groups * 4
        for slot in range(begin, end):
            scratch = a[12] + slot * a[13]
            sums = scratch + a[14]
            panel, last = slot * pairs // a[11] * pair, min(a[8], (slot + 1) * pairs // a[11] * pair)
            for row in range(0, rows, block):
                count, x, out = min(block, rows - row), a[0] + row * a[1], a[2] + row * a[3]
                if has_minimum:
                    for one in range(count):
                        add_up(x + one * a[1], sums + one * sums_stride, depth, groups)
                product(arguments, first, panel, last, scratch, x, a[1], sums, sums_stride, depth, out, a[3], a[4], count, n)

    return slots


def _sums():
    """add_up(x, sums, depth, groups): of each group of a row of x."""
    lanes = coded_panels.LANES
    load, zero, splat, floats = vectors.load("bfloat16", lanes), vectors.single(0.0), vectors.splat(lanes), vectors.floats

    @compile.inner
    def add_up(x, sums, depth, groups):
        each = depth // groups
        for group in range(groups):
            total = splat(zero)
            for column in range(group * each, (group + 1) * each, lanes):
                total = total + load(x + column * 2)
            floats(sums)[group] = vectors.reduce_add(total)

    return add_up


def refuses_layout(layout: Layout | None, columns: int) -> str | None:
    """Why a layout's weights are not kept in panels, or None."""
    recipe = None if layout is None else coded_panels.recipe(layout)
    if recipe is None:
        return f"{layout} has no panels"
    if not features.level().startswith("avx512"):
        return "the CPU lacks AVX512, which panels of codes are looked up with"
    if columns % recipe.step():
        return f"{columns} columns are not whole steps of {recipe.step()} in panels"
    if recipe.minimum and recipe.groups(columns) > _MOST_GROUPS:
        return f"{recipe.groups(columns)} groups are more than {_MOST_GROUPS}, for panels"
    return None


class Implementation:
    """See the reference; x's and out's rows may be strided. The packed weight is what coded_panels.pack makes."""

    packs_panels = True

    def __init__(self, facts: Facts) -> None:
        assert facts.layout is not None
        recipe = coded_panels.recipe(facts.layout)
        assert recipe is not None
        self.facts = facts
        parameters = (recipe, str(facts.result)[6:])
        self._alone = compile.kernel(build_alone, *parameters)
        self._kernel = compile.kernel(build, *parameters)
        self._arguments = pool.Arguments(_FIRST + coded_tile.NUM_ADDRESSES)
        self._out_size, self._depth = facts.result.itemsize, facts.in_features
        self._planes = list(coded_panels.plane_bytes(recipe, self._depth))
        self._groups = recipe.groups(self._depth)
        self._panels = -(-facts.out_features // coded_panels.LANES)
        self._block = max(_LEAST_BLOCK, _BLOCK_BYTES // (2 * self._depth))
        self._decoded_bytes = coded_tile.scratch_bytes(recipe, self._depth)
        sums = self._block * self._groups * 4 if recipe.minimum else 0
        self._slot_bytes = self._decoded_bytes + -(-sums // coded_tile.VECTOR_BYTES) * coded_tile.VECTOR_BYTES
        self._scratch(torch.get_num_threads())  # now, so that it does not move later

    def _scratch(self, slots: int) -> int:
        line = coded_tile.VECTOR_BYTES
        return -(-pool.scratch(slots * self._slot_bytes + line) // line) * line

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        if facts.is_dense:
            return "the weight is plain numbers"
        if facts.activation is not None:
            return "activations are coded"
        if facts.dtype != torch.bfloat16:
            return f"dtype {str(facts.dtype)[6:]} is not that of panels of codes, bfloat16"
        if facts.result not in (torch.bfloat16, torch.float32):
            return f"output dtype {str(facts.result)[6:]} is neither float32 nor bfloat16"
        return refuses_layout(facts.layout, facts.in_features)

    @staticmethod
    def pack(weight: Tensors, facts: Facts) -> Tensors:
        assert facts.layout is not None
        return coded_panels.pack(facts.layout, weight, facts.out_features, facts.in_features)

    def __call__(self, out: torch.Tensor, x: torch.Tensor, weight: Tensors, bias: torch.Tensor | None = None) -> None:
        rows, slots = x.shape[0], torch.get_num_threads()
        blocks = -(-rows // self._block) or 1
        self._arguments.set(
            x.data_ptr(),
            x.stride(0) * 2,
            out.data_ptr(),
            out.stride(0) * self._out_size,
            0 if bias is None else bias.data_ptr(),
            rows,
            self.facts.out_features,
            self._depth,
            self._panels,
            self._groups,
            -(-rows // blocks),
            slots,
            self._scratch(slots) if rows > 1 else 0,
            self._slot_bytes,
            self._decoded_bytes,
            *addresses(self._planes, weight),
        )
        if rows == 1:
            self._alone(self._panels, coded_tile.MOST_ALONE, self._arguments)
        else:
            self._kernel(slots if rows else 0, 1, self._arguments)


def addresses(planes: list[str], weight: Tensors) -> list[int]:
    """The coded_tile.NUM_ADDRESSES numbers of a weight that a kernel's arguments hold."""
    named = dict(zip(planes, weight, strict=True))
    return [
        number for name in coded_panels.PLANES for number in ((named[name].data_ptr(), named[name].shape[1]) if name in named else (0, 0))
    ]
