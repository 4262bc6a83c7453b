"""Embedding from the panels of a tied output head in codes: a token's panel is decoded, and its row taken of it."""

import torch

from octavo.ops.cpu import coded_panels, coded_tile, compile, linear_coded, pool, vectors
from octavo.ops.embedding import CodedPanels, Facts
from octavo.ops.weights import Tensors

# arguments before the planes': 0 out, 1 out stride, 2 ids, 3 rows, 4 width, 5 scale, 6 tokens, 7 slots, 8 scratch, 9 bytes of a slot's
# scratch, 10 from there to the scales, 11 to the minimums
_FIRST = 12


def build(recipe):
    """Units are slots: each takes its share of the tokens, with a scratch of its own."""
    (decode, _), first, lanes, group = coded_tile.decode(recipe), _FIRST, coded_panels.LANES, recipe.group
    read, write, single = vectors.read("bfloat16"), vectors.write("bfloat16"), vectors.single
    int64s, int32s, floats, doubles = vectors.int64s, vectors.int32s, vectors.floats, vectors.doubles
    has_minimum, has_factors = bool(recipe.minimum), recipe.has_row_factors
    at_factors = _FIRST + 2 * coded_panels.PLANES.index("rows")

    def slots(begin, end, arguments):
        a = int64s(arguments)
        ids, rows, width, scale, tokens = int32s(a[2]), a[3], a[4], single(doubles(arguments)[5]), a[6]
        for slot in range(begin, end):
            values = a[8] + slot * a[9]
            scales, minimums = values + a[10], values + a[11]
            for token in range(slot * tokens // a[7], (slot + 1) * tokens // a[7]):
                row = min(max(ids[token], 0), rows - 1)
                panel, lane = row // lanes, row % lanes * 4
                decode(arguments, first, panel, values, width)
                target = a[0] + token * a[1]
                for i in range(width):
                    place = (i // group if group else 0) * lanes * 4 + lane
                    number = single(read(values + i // 2 * lanes * 4 + lane + i % 2 * 2) * floats(scales + place)[0])
                    if has_minimum:
                        number = single(number + floats(minimums + place)[0])
                    if has_factors:
                        number = single(number * floats(a[at_factors] + panel * lanes * 4 + lane)[0])
                    write(target + i * 2, number)
                    if scale != single(1.0):
                        write(target + i * 2, single(read(target + i * 2) * scale))

    return slots


class Implementation:
    """See the reference."""

    def __init__(self, facts: Facts) -> None:
        assert isinstance(facts.layout, CodedPanels)
        recipe = coded_panels.recipe(facts.layout.layout)
        assert recipe is not None
        self.facts = facts
        self._kernel = compile.kernel(build, recipe)
        self._arguments = pool.Arguments(_FIRST + coded_tile.NUM_ADDRESSES)
        self._scale = pool.bits(torch.tensor(facts.scale, dtype=facts.dtype).item())
        self._planes = list(coded_panels.plane_bytes(recipe, facts.width))
        self._slot_bytes = coded_tile.scratch_bytes(recipe, facts.width)
        self._offsets = coded_tile.scratch_offsets(recipe, facts.width)
        pool.scratch(self._scratch_bytes(torch.get_num_threads()))  # now, so that it does not move later

    def _scratch_bytes(self, slots: int) -> int:
        return slots * self._slot_bytes + coded_tile.VECTOR_BYTES

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        if not isinstance(facts.layout, CodedPanels):
            return "the table is not panels of codes"
        if facts.dtype != torch.bfloat16:
            return f"dtype {str(facts.dtype)[6:]} is not that of panels of codes, bfloat16"
        return linear_coded.refuses_layout(facts.layout.layout, facts.width)

    @staticmethod
    def pack(weight: Tensors, facts: Facts) -> Tensors:
        assert isinstance(facts.layout, CodedPanels)
        return coded_panels.pack(facts.layout.layout, weight, facts.rows, facts.width)

    def __call__(self, out: torch.Tensor, ids: torch.Tensor, table: Tensors) -> None:
        facts, tokens, slots = self.facts, ids.shape[0], min(ids.shape[0], torch.get_num_threads())
        line = coded_tile.VECTOR_BYTES
        self._arguments.set(
            out.data_ptr(),
            out.stride(0) * 2,
            ids.data_ptr(),
            facts.rows,
            facts.width,
            self._scale,
            tokens,
            slots,
            -(-pool.scratch(self._scratch_bytes(slots)) // line) * line,
            self._slot_bytes,
            *self._offsets,
            *linear_coded.addresses(self._planes, table),
        )
        self._kernel(slots, 1, self._arguments)
