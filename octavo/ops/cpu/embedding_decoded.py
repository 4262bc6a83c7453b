"""Embedding from a table of codes or GGUF blocks: a token's row is decoded where it goes."""

import torch

from octavo.ops.cpu import compile, features, linear_decoded, pool, vectors
from octavo.ops.embedding import CodedPanels, Facts
from octavo.ops.weights import Tensors

_FIRST = 6  # arguments before the table's: 0 out, 1 out stride, 2 ids, 3 rows, 4 width, 5 scale
_GRAIN = 16384  # numbers that are worth another thread


def build(layout, dtype, lanes):
    """Units are tokens."""
    decode, first = linear_decoded.decoder(layout).row(layout, dtype), _FIRST
    load, store, read, write = vectors.load(dtype, lanes), vectors.store(dtype, lanes), vectors.read(dtype), vectors.write(dtype)
    splat, single, size = vectors.splat(lanes), vectors.single, vectors.SIZES[dtype]
    int64s, int32s, doubles = vectors.int64s, vectors.int32s, vectors.doubles

    def tokens(begin, end, arguments):
        a = int64s(arguments)
        ids, rows, width, scale = int32s(a[2]), a[3], a[4], single(doubles(arguments)[5])
        for token in range(begin, end):
            target = a[0] + token * a[1]
            decode(a, first, min(max(ids[token], 0), rows - 1), width, target)
            if scale != single(1.0):
                i = 0
                while i + lanes <= width:
                    store(target + i * size, load(target + i * size) * splat(scale))
                    i += lanes
                while i < width:
                    write(target + i * size, read(target + i * size) * scale)
                    i += 1

    return tokens


class Implementation:
    """See the reference."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._decoder = linear_decoded.decoder(facts.layout)
        self._kernel = compile.kernel(build, facts.layout, str(facts.dtype)[6:], features.lanes())
        self._arguments = pool.Arguments(_FIRST + self._decoder.NUM_ADDRESSES)
        self._scale = pool.bits(torch.tensor(facts.scale, dtype=facts.dtype).item())
        self._grain = max(1, _GRAIN // facts.width)

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        if isinstance(facts.layout, str):
            return "the table is plain numbers"
        if isinstance(facts.layout, CodedPanels):
            return "the table is panels of codes"
        if facts.dtype not in linear_decoded.DTYPES:
            return f"dtype {str(facts.dtype)[6:]} is neither float32 nor bfloat16"
        return linear_decoded.refuses_layout(facts.layout)

    @staticmethod
    def pack(weight: Tensors, facts: Facts) -> Tensors:
        return weight

    def __call__(self, out: torch.Tensor, ids: torch.Tensor, table: Tensors) -> None:
        facts = self.facts
        stride = out.stride(0) * facts.dtype.itemsize
        addresses = self._decoder.addresses(facts.layout, table)
        self._arguments.set(out.data_ptr(), stride, ids.data_ptr(), facts.rows, facts.width, self._scale, *addresses)
        self._kernel(ids.shape[0], self._grain, self._arguments)
