"""Linear by the register tile: weights in panels, threads over blocks of rows and panels; float32 and bfloat16."""

import torch

from octavo.ops.cpu import compile, features, panels, pool, tile, vectors
from octavo.ops.linear import Facts

DTYPES = (torch.float32, torch.bfloat16)
# rows of x in a block: what stays in a core's second-level cache while the panels pass, but enough to use each panel often
_BLOCK_BYTES = 512 * 1024
_LEAST_BLOCK = 128


def build(dtype, out_dtype, has_bias):
    """Units are (block of rows, panel), panels fastest."""
    int64s = vectors.int64s
    product = tile.product(dtype, out_dtype, has_bias)

    def units(begin, end, arguments):
        a = int64s(arguments)
        x, x_stride, weight, out, out_stride, bias = a[0], a[1], a[2], a[3], a[4], a[5]
        rows, n, k, num_panels, block = a[6], a[7], a[8], a[9], a[10]
        unit = begin
        while unit < end:
            row = unit // num_panels * block
            first = unit % num_panels
            last = min(num_panels, first + end - unit)
            count = min(block, rows - row)
            product(x + row * x_stride, x_stride, weight, out + row * out_stride, out_stride, bias, count, n, k, first, last)
            unit += last - first

    return units


class Implementation:
    """See the reference; x's and out's rows may be strided. The packed weight is what panels.pack makes."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        size = facts.dtype.itemsize
        self._kernel = compile.kernel(build, str(facts.dtype)[6:], str(facts.result)[6:], facts.has_bias)
        self._arguments = pool.Arguments(11)
        self._num_panels = -(-facts.out_features // features.lanes())
        _, self._grain = tile.largest(str(facts.dtype)[6:])
        self._block = max(_LEAST_BLOCK, _BLOCK_BYTES // (facts.in_features * size))
        self._size, self._out_size = size, facts.result.itemsize

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        if not facts.is_dense:
            return "the weight is not plain numbers"
        for name, dtype in (("", facts.dtype), ("output ", facts.result)):
            if dtype not in DTYPES:
                return f"{name}dtype {str(dtype)[6:]} is neither float32 nor bfloat16"
        return None

    @staticmethod
    def pack(weight: torch.Tensor, facts: Facts) -> torch.Tensor:
        return panels.pack(weight)

    def __call__(self, out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        facts = self.facts
        rows = x.shape[0]
        # blocks are cut evenly, so that the last is not a sliver that one thread waits for
        blocks = -(-rows // self._block) or 1
        block = -(-rows // blocks)
        self._arguments.set(
            x.data_ptr(),
            x.stride(0) * self._size,
            weight.data_ptr(),
            out.data_ptr(),
            out.stride(0) * self._out_size,
            0 if bias is None else bias.data_ptr(),
            rows,
            facts.out_features,
            facts.in_features,
            self._num_panels,
            block,
        )
        self._kernel(blocks * self._num_panels if rows else 0, self._grain, self._arguments)
