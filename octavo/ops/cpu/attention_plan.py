"""Attention's work list: which tokens of which row over which spans of its context are one piece of work, and what memory the pieces need.

A unit is up to `tokens_per_unit` consecutive tokens of a row. A single token with a long context is cut into pieces of one span each,
when the step has too few units to keep all threads busy: their sums are kept apart and folded in the order of the spans, as one thread
would have.

The list also holds the counters by which threads share it. Who makes the list zeroes them, and who is last to use one zeroes it again: a
list serves any number of calls, one after another.
"""

from dataclasses import dataclass

import torch

from octavo.ops.attention import Facts
from octavo.ops.cpu import vectors
from octavo.ops.cpu.attention_tiles import SPAN
from octavo.ops.cpu.compile import kernel
from octavo.ops.cpu.pool import Arguments

UNIT_ROWS = 48  # query rows (tokens x heads that share a kv head) of a unit
UNIT = 8  # int32 numbers: row, token, tokens, first span, last span, cut, pieces, origin
# before the counters stand the numbers of units and of cut tokens, and where the units begin. The first counts the units that are taken;
# 16 numbers behind it there is one of each cut token and kv head, of the pieces that are done
COUNTERS = 16
_PIECES_PER_THREAD = 4


def build():
    """The body that makes the list; one unit of work, for one thread.

    arguments: out, row_starts, lengths, rows, tokens_per_unit, window, kv heads, threads, where the units begin.
    """
    span, counters, unit = SPAN, COUNTERS, UNIT
    pieces_per_thread = _PIECES_PER_THREAD

    def body(begin, end, arguments):
        a = vectors.int64s(arguments)
        out, starts, lengths = vectors.int32s(a[0]), vectors.int32s(a[1]), vectors.int32s(a[2])
        rows, tokens_per_unit, window, kv_heads, threads, header = a[3], a[4], a[5], a[6], a[7], a[8]
        for at in range(counters, header):
            out[at] = 0
        cost = 0
        for row in range(rows):
            count = starts[row + 1] - starts[row]
            if count == 0:
                continue
            first = lengths[row] - count
            low = max(0, first - window + 1) if window > 0 else 0
            cost += count * ((lengths[row] + span - 1) // span - low // span)
        share = (cost * kv_heads + pieces_per_thread * threads - 1) // (pieces_per_thread * threads)
        if threads == 1:
            share = cost
        share = max(share, 1)
        units, cuts = 0, 0
        for row in range(rows):
            token = starts[row]
            while token < starts[row + 1]:
                count = min(tokens_per_unit, starts[row + 1] - token)
                position = lengths[row] - (starts[row + 1] - token)
                low = max(0, position - window + 1) if window > 0 else 0
                origin, last = low // span, (position + count - 1) // span + 1
                pieces, cut = 1, -1
                if count == 1 and last - origin > share:
                    pieces = last - origin
                    cut = cuts
                    cuts += 1
                for piece in range(pieces):
                    at = header + unit * units
                    out[at] = row
                    out[at + 1] = token
                    out[at + 2] = count
                    out[at + 3] = origin + piece
                    out[at + 4] = origin + piece + 1 if cut >= 0 else last
                    out[at + 5] = cut
                    out[at + 6] = pieces
                    out[at + 7] = origin
                    units += 1
                token += count
        out[0] = units
        out[1] = cuts
        out[2] = header

    return body


@dataclass(frozen=True, slots=True)
class Sizes:
    """Upper bounds of a step, from the numbers of its tokens, rows and longest context."""

    units: int
    cuts: int  # tokens whose context is cut
    spans: int  # of one token
    header: int  # int32 numbers before the units

    @property
    def plan_numbers(self) -> int:
        """int32 numbers of the list."""
        return self.header + UNIT * self.units


class Planner:
    """Makes the list for one set of facts and a number of threads."""

    def __init__(self, facts: Facts, threads: int) -> None:
        self._kernel = kernel(build)
        self._arguments = Arguments(9)
        self._threads = threads
        self._window = facts.window
        self._kv_heads = facts.layout.num_kv_heads
        self.tokens_per_unit = tokens_per_unit(facts)

    def __call__(self, out: torch.Tensor, row_starts: torch.Tensor, lengths: torch.Tensor) -> None:
        """out int32 [sizes().plan_numbers]; row_starts int32 [rows + 1]; lengths int32 [rows]."""
        shape = (lengths.shape[0], self.tokens_per_unit, self._window, self._kv_heads, self._threads)
        self._arguments.set(out.data_ptr(), row_starts.data_ptr(), lengths.data_ptr(), *shape, _header(self._threads))
        self._kernel(1, 1, self._arguments)


def _header(threads: int) -> int:
    return COUNTERS + 16 + -(-_PIECES_PER_THREAD * threads // 16) * 16


def tokens_per_unit(facts: Facts) -> int:
    return max(1, UNIT_ROWS // (facts.num_heads // facts.layout.num_kv_heads))


def sizes(facts: Facts, threads: int, num_tokens: int, num_rows: int, max_length: int) -> Sizes:
    """Bounds that hold for every step of at most these numbers.

    A token is cut only where its spans exceed its share, the whole cost by 4 x threads / kv heads: fewer than that many tokens can.
    """
    context = min(max_length, facts.window + SPAN) if facts.window else max_length
    spans = -(-context // SPAN)
    cuts = 0 if threads == 1 else min(num_rows, _PIECES_PER_THREAD * threads // facts.layout.num_kv_heads)
    return Sizes(num_tokens // tokens_per_unit(facts) + num_rows + cuts * spans, cuts, spans, _header(threads))
