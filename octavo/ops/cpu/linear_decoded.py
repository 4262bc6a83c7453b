"""Linear with a weight that is not plain numbers: a few of its rows are decoded at a time, then multiplied with all rows of x.

Nothing but those few rows is ever widened. The decoded numbers are rounded to x's dtype, so that the result is that of a plain weight.
"""

import torch

from octavo.ops.cpu import compile, decode_blocks, decode_coded, dot_tile, pool, vectors
from octavo.ops.linear import Facts
from octavo.ops.weights import Blocks, Coded, Layout, Tensors

DTYPES = (torch.float32, torch.bfloat16)
ROWS_AT_ONCE = 16
# arguments before the weight's: 0 x, 1 x stride, 2 out, 3 out stride, 4 bias, 5 rows of x, 6 columns of out, 7 depth, 8 slots, 9 scratch,
# 10 bytes of a slot's scratch
_FIRST = 11


def decoder(layout: Layout):
    """The module that decodes a layout."""
    return decode_blocks if isinstance(layout, Blocks) else decode_coded


def build(layout, dtype, out_dtype, has_bias):
    """Units are slots: each takes its share of the weight's rows, in runs, with a scratch of its own."""
    int64s, first, at_once = vectors.int64s, _FIRST, ROWS_AT_ONCE
    multiply = multiplied(layout, dtype, out_dtype, has_bias)

    def slots(begin, end, arguments):
        a = int64s(arguments)
        runs = (a[6] + at_once - 1) // at_once
        for slot in range(begin, end):
            scratch = a[9] + slot * a[10]
            for run in range(slot * runs // a[8], (slot + 1) * runs // a[8]):
                start = run * at_once
                multiply(a, first, scratch, a[0], a[1], a[2], a[3], a[4], a[5], start, min(at_once, a[6] - start), a[7])

    return slots


def multiplied(layout, dtype, out_dtype, has_bias):
    """multiply(arguments, first, scratch, x, x_stride, out, out_stride, bias, rows, start, count, depth): rows start .. start + count of
    the weight at arguments[first ..] are decoded into the scratch and multiplied with all rows of x.
    """
    decode = decoder(layout).row(layout, dtype)
    most, wide = dot_tile.LARGEST[dot_tile.features.level()]
    tiles = {(r, c): dot_tile.tile(r, c, dtype, out_dtype, has_bias) for r in (most, 1) for c in (wide, 1)}
    of_most_wide, of_most_slim, of_one_wide, of_one_slim = tiles[most, wide], tiles[most, 1], tiles[1, wide], tiles[1, 1]
    size, out_size, width = vectors.SIZES[dtype], vectors.SIZES[out_dtype], dot_tile.step(dtype)
    write, zero = vectors.write(dtype), vectors.single(0.0)

    @compile.inner
    def multiply(a, first, scratch, x, x_stride, out, out_stride, bias, rows, start, count, depth):
        padded = (depth + width - 1) // width * width
        stride = padded * size
        for row in range(count):
            decode(a, first, start + row, depth, scratch + row * stride)
            for column in range(depth, padded):
                write(scratch + row * stride + column * size, zero)
        row = 0
        while row < rows:
            is_most = row + most <= rows
            source = x + row * x_stride
            column = 0
            while column < count:
                weight = scratch + column * stride
                target = out + row * out_stride + (start + column) * out_size
                shift = bias + (start + column) * size
                if column + wide <= count:
                    if is_most:
                        of_most_wide(source, x_stride, weight, stride, target, out_stride, shift, depth)
                    else:
                        of_one_wide(source, x_stride, weight, stride, target, out_stride, shift, depth)
                    column += wide
                else:
                    if is_most:
                        of_most_slim(source, x_stride, weight, stride, target, out_stride, shift, depth)
                    else:
                        of_one_slim(source, x_stride, weight, stride, target, out_stride, shift, depth)
                    column += 1
            row += most if is_most else 1

    return multiply


def scratch_bytes(depth: int, dtype: torch.dtype) -> int:
    """Of one slot: ROWS_AT_ONCE rows, padded."""
    width = dot_tile.step(str(dtype)[6:])
    return -(-depth // width) * width * dtype.itemsize * ROWS_AT_ONCE


class Implementation:
    """See the reference; x's and out's rows may be strided. The weight is the tensors of its layout, as they are."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        layout = facts.layout
        self._decoder = decoder(layout)
        self._kernel = compile.kernel(build, layout, str(facts.dtype)[6:], str(facts.result)[6:], facts.has_bias)
        self._arguments = pool.Arguments(_FIRST + self._decoder.NUM_ADDRESSES)
        self._size, self._out_size = facts.dtype.itemsize, facts.result.itemsize
        self._scratch_bytes = scratch_bytes(facts.in_features, facts.dtype)

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        if facts.is_dense:
            return "the weight is plain numbers"
        if facts.activation is not None:
            return "activations are coded"
        for name, dtype in (("", facts.dtype), ("output ", facts.result)):
            if dtype not in DTYPES:
                return f"{name}dtype {str(dtype)[6:]} is neither float32 nor bfloat16"
        return refuses_layout(facts.layout)

    @staticmethod
    def pack(weight: Tensors, facts: Facts) -> Tensors:
        return weight

    def __call__(self, out: torch.Tensor, x: torch.Tensor, weight: Tensors, bias: torch.Tensor | None = None) -> None:
        facts, slots = self.facts, torch.get_num_threads()
        self._arguments.set(
            x.data_ptr(),
            x.stride(0) * self._size,
            out.data_ptr(),
            out.stride(0) * self._out_size,
            0 if bias is None else bias.data_ptr(),
            x.shape[0],
            facts.out_features,
            facts.in_features,
            slots,
            pool.scratch(slots * self._scratch_bytes),
            self._scratch_bytes,
            *self._decoder.addresses(facts.layout, weight),
        )
        self._kernel(slots if x.shape[0] else 0, 1, self._arguments)


def refuses_layout(layout: Layout | None) -> str | None:
    """Why a layout cannot be decoded here, or None."""
    if isinstance(layout, Blocks) and layout.number_format not in decode_blocks.BLOCKS:
        return f"blocks of {layout.number_format} have no decoder"
    if isinstance(layout, Coded) and layout.group and layout.has_column_groups:
        return "columns cannot have a group of their own and by position"
    return None
