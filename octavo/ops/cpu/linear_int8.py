"""Linear with int8 weights and int8 activations: rows of x are coded, some at a time, then multiplied as integers by the int8 tile.

A single row is coded by each thread for itself, which costs less than to wait for another that does.
"""

import torch

from octavo.ops.cpu import compile, features, int8_rows, int8_tile, pool, vectors
from octavo.ops.linear import INT8, INT8_GROUP, MOST_INT8_FEATURES, Facts
from octavo.ops.weights import Tensors

DTYPES = (torch.float32, torch.bfloat16)
_CODED_BYTES = 4 * 2**20  # of rows that are coded at a time
_BLOCK_BYTES = 512 * 1024  # of coded rows that stay in a core's second-level cache while the panels pass
_LEAST_BLOCK = 128


def build(dtype, out_dtype, has_bias):
    """Units are (block of rows, panel), panels fastest."""
    int64s = vectors.int64s
    product = int8_tile.product(dtype, out_dtype, has_bias)

    def units(begin, end, arguments):
        a = int64s(arguments)
        x, x_stride, group_bytes, group_steps, weight, scales = a[0], a[1], a[2], a[3], a[4], a[5]
        out, out_stride, bias, rows, n, steps, num_panels, block = a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13]
        unit = begin
        while unit < end:
            row = unit // num_panels * block
            first = unit % num_panels
            last = min(num_panels, first + end - unit)
            count = min(block, rows - row)
            source, target = x + row * x_stride, out + row * out_stride
            product(source, x_stride, group_bytes, group_steps, weight, scales, target, out_stride, bias, count, n, steps, first, last)
            unit += last - first

    return units


def build_alone(dtype, out_dtype, has_bias, is_static):
    """One row of x. Units are slots with a scratch each: a slot codes the row and multiplies it with its share of the panels."""
    int64s, code_row = vectors.int64s, int8_rows.coding(dtype, is_static)
    most, size, bias_size, lanes = int8_tile.ALONE, vectors.SIZES[out_dtype], vectors.SIZES[dtype], features.lanes()
    wide, slim = (int8_tile.tile(1, count, dtype, out_dtype, has_bias) for count in (most, 1))

    def slots(begin, end, arguments):
        a = int64s(arguments)
        row, group_bytes, group_steps, steps, num_panels, n = a[0], a[2], a[3], a[11], a[12], a[10]
        shares = (num_panels + most - 1) // most
        panel_bytes = steps * lanes * 4
        for slot in range(begin, end):
            coded = a[14] + slot * a[1]
            code_row(row, coded, a[15], a[16], group_bytes, a[17])
            panel, last = slot * shares // a[18] * most, min(num_panels, (slot + 1) * shares // a[18] * most)
            while panel < last:
                column = panel * lanes
                weight, scales, out, bias = a[4] + panel * panel_bytes, a[5] + column * 4, a[6] + column * size, a[8] + column * bias_size
                if panel + most <= last:
                    wide(coded, 0, group_bytes, group_steps, weight, panel_bytes, scales, out, 0, bias, steps, n - column)
                    panel += most
                else:
                    slim(coded, 0, group_bytes, group_steps, weight, panel_bytes, scales, out, 0, bias, steps, n - column)
                    panel += 1

    return slots


class Implementation:
    """See the reference; x's and out's rows may be strided. The packed weight is (panels, scales), and x's scale where that is stored."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        dtype = str(facts.dtype)[6:]
        self._is_static = facts.activation == "int8_static"
        self._coding = compile.kernel(int8_rows.build, dtype, self._is_static)
        self._coding_arguments = pool.Arguments(8)
        self._kernel = compile.kernel(build, dtype, str(facts.result)[6:], facts.has_bias)
        self._alone = compile.kernel(build_alone, dtype, str(facts.result)[6:], facts.has_bias, self._is_static)
        self._arguments = pool.Arguments(19)
        self._group = INT8_GROUP if facts.activation == "int8_group" else facts.in_features
        self._group_bytes = int8_rows.group_bytes(self._group)
        self._row_bytes = int8_rows.row_bytes(facts.in_features, self._group)
        self._rows_at_once = max(_LEAST_BLOCK, _CODED_BYTES // self._row_bytes)
        self._block = max(_LEAST_BLOCK, _BLOCK_BYTES // self._row_bytes)
        self._size, self._out_size = facts.dtype.itemsize, facts.result.itemsize
        pool.scratch(max(self._rows_at_once, torch.get_num_threads()) * self._row_bytes)  # now, so that it does not move later

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        if facts.activation is None:
            return "activations are not coded"
        if facts.layout != INT8:
            return f"the weight is not int8 with a scale for each row, but {facts.layout}"
        for name, dtype in (("", facts.dtype), ("output ", facts.result)):
            if dtype not in DTYPES:
                return f"{name}dtype {str(dtype)[6:]} is neither float32 nor bfloat16"
        if facts.in_features > MOST_INT8_FEATURES:
            return f"{facts.in_features} products of bytes can be more than an int32 holds"
        return None

    @staticmethod
    def pack(weight: Tensors, facts: Facts) -> Tensors:
        return (int8_tile.pack(weight[0]), *weight[1:])

    def __call__(self, out: torch.Tensor, x: torch.Tensor, weight: Tensors, bias: torch.Tensor | None = None) -> None:
        rows = x.shape[0]
        # pieces are cut evenly, so that the last is not a sliver
        pieces = -(-rows // self._rows_at_once)
        for piece in range(pieces):
            start, end = piece * rows // pieces, (piece + 1) * rows // pieces
            self._multiply(out[start:end], x[start:end], weight, bias)

    def _multiply(self, out: torch.Tensor, x: torch.Tensor, weight: Tensors, bias: torch.Tensor | None) -> None:
        facts, rows, slots = self.facts, x.shape[0], torch.get_num_threads()
        coded = pool.scratch(max(rows, slots) * self._row_bytes)
        scale = weight[2].data_ptr() if self._is_static else 0
        groups = (self._group, self._group_bytes)
        if rows > 1:
            self._coding_arguments.set(x.data_ptr(), x.stride(0) * self._size, coded, self._row_bytes, facts.in_features, *groups, scale)
            self._coding(rows, 1, self._coding_arguments)
        panels = weight[0]
        blocks = -(-rows // self._block)
        self._arguments.set(
            x.data_ptr() if rows == 1 else coded,
            self._row_bytes,
            self._group_bytes,
            -(-self._group // 4),
            panels.data_ptr(),
            weight[1].data_ptr(),
            out.data_ptr(),
            out.stride(0) * self._out_size,
            0 if bias is None else bias.data_ptr(),
            rows,
            facts.out_features,
            panels.shape[1],
            panels.shape[0],
            -(-rows // blocks),
            coded,
            facts.in_features,
            self._group,
            scale,
            slots,
        )
        if rows == 1:
            self._alone(slots, 1, self._arguments)
        else:
            self._kernel(blocks * panels.shape[0], int8_tile.largest()[1], self._arguments)
