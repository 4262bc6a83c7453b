"""Embedding from plain rows or from the panels of a tied output head, for float32 and bfloat16."""

import torch

from octavo.ops.cpu import compile, features, panels, pool, vectors
from octavo.ops.embedding import Facts

_GRAIN = 16384  # numbers that are worth another thread


def build_rows(dtype, lanes):
    """Units are tokens; the table is [rows, width]."""
    load, store, size = vectors.load(dtype, lanes), vectors.store(dtype, lanes), vectors.SIZES[dtype]
    load_part, store_part, splat = vectors.load_part(dtype, lanes), vectors.store_part(dtype, lanes), vectors.splat(lanes)
    int64s, int32s, doubles = vectors.int64s, vectors.int32s, vectors.doubles

    def tokens(begin, end, arguments):
        a = int64s(arguments)
        out, out_stride, ids, table, rows, width = a[0], a[1], int32s(a[2]), a[3], a[4], a[5]
        scale = splat(doubles(arguments)[6])
        for token in range(begin, end):
            source = table + min(max(ids[token], 0), rows - 1) * width * size
            target = out + token * out_stride
            i = 0
            while i + lanes <= width:
                store(target + i * size, load(source + i * size) * scale)
                i += lanes
            store_part(target + i * size, load_part(source + i * size, width - i) * scale, width - i)

    return tokens


def build_panels(dtype, lanes):
    """Units are tokens; the table is in panels: a row's numbers, or pairs of them, lie `lanes` * 4 bytes apart."""
    read, write, splat = vectors.read(dtype), vectors.write(dtype), vectors.single
    int64s, int32s, doubles, size = vectors.int64s, vectors.int32s, vectors.doubles, vectors.SIZES[dtype]
    in_step = 4 // size

    def tokens(begin, end, arguments):
        a = int64s(arguments)
        out, out_stride, ids, table, rows, width = a[0], a[1], int32s(a[2]), a[3], a[4], a[5]
        scale = splat(doubles(arguments)[6])
        panel_bytes = (width + in_step - 1) // in_step * lanes * 4
        for token in range(begin, end):
            row = min(max(ids[token], 0), rows - 1)
            source = table + row // lanes * panel_bytes + row % lanes * 4
            target = out + token * out_stride
            for i in range(width):
                write(target + i * size, read(source + i // in_step * lanes * 4 + i % in_step * size) * scale)

    return tokens


class Implementation:
    """See the reference. `pack` gives the layout that the facts name."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        build = build_panels if facts.layout == "panels" else build_rows
        self._kernel = compile.kernel(build, str(facts.dtype)[6:], features.lanes())
        self._arguments = pool.Arguments(7)
        self._scale = pool.bits(torch.tensor(facts.scale, dtype=facts.dtype).item())
        self._grain = max(1, _GRAIN // facts.width)

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        if facts.layout not in ("rows", "panels"):
            return "the table is not plain numbers"
        if facts.dtype not in (torch.float32, torch.bfloat16):
            return f"dtype {str(facts.dtype)[6:]} is neither float32 nor bfloat16"
        return None

    @staticmethod
    def pack(weight: torch.Tensor, facts: Facts) -> torch.Tensor:
        return panels.pack(weight) if facts.layout == "panels" else weight

    def __call__(self, out: torch.Tensor, ids: torch.Tensor, table: torch.Tensor) -> None:
        facts = self.facts
        stride = out.stride(0) * facts.dtype.itemsize
        self._arguments.set(out.data_ptr(), stride, ids.data_ptr(), table.data_ptr(), facts.rows, facts.width, self._scale)
        self._kernel(ids.shape[0], self._grain, self._arguments)
