"""Rows and assembly: columns in, one flat batch out, against the plainest loop that could say the same."""

import random

import numpy as np
import pytest

from octavo.protocol.columns import pack, unpack
from octavo.protocol.step import STORED, VALUE, GroupChange, NewRow
from octavo.worker.assembly import Assembly
from octavo.worker.rows import EMPTY, Rows

BLOCK = 4


def new_row(row: int, tokens: list[int], tables: list[list[int]], epoch: int = 1, computed: int = 0) -> NewRow:
    return NewRow(row, epoch, f"r{row}", pack(tokens), len(tokens), computed, [pack(t) for t in tables])


def int32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_a_row_that_is_wrong_in_itself_is_refused_and_left_empty() -> None:
    rows = Rows(2, 16, 1, BLOCK)
    rows.begin(new_row(0, [1], [[1]]))
    for wrong in (
        new_row(0, [], [[1]]),
        new_row(0, [1] * 17, [[1]]),
        new_row(0, [1], [[1], [1]]),
        new_row(0, [1], [[1] * 5]),
    ):
        with pytest.raises(ValueError):
            rows.begin(wrong)
        assert rows.epochs[0] == EMPTY
    with pytest.raises(ValueError, match="row 2 is not one"):
        rows.begin(new_row(2, [1], [[1]]))


def test_appended_blocks_go_to_the_ends_of_their_tables() -> None:
    rows = Rows(3, 32, 2, BLOCK)
    for row in range(3):
        rows.begin(new_row(row, [7], [[10 + row], []]))
    plan_rows = int32(2, 0)
    one_each = GroupChange(append_rows=pack([0, 1]), append_counts=pack([1, 1]), append_blocks=pack([20, 21]))
    several = GroupChange(append_rows=pack([1, 0]), append_counts=pack([3, 1]), append_blocks=pack([30, 31, 32, 33]))
    rows.append_blocks(0, one_each, plan_rows)
    rows.append_blocks(0, several, plan_rows)
    rows.append_blocks(1, several, plan_rows)
    assert rows.tables[0][2, :3].tolist() == [12, 20, 33]
    assert rows.tables[0][0, :5].tolist() == [10, 21, 30, 31, 32]
    assert rows.tables[0][1, :2].tolist() == [11, 0]
    assert rows.tables[1][0, :3].tolist() == [30, 31, 32]
    assert rows.num_blocks[0].tolist() == [5, 1, 3]
    with pytest.raises(ValueError, match="more blocks"):
        rows.append_blocks(0, GroupChange(append_rows=pack([1]), append_counts=pack([4]), append_blocks=pack([1, 2, 3, 4])), plan_rows)


def test_the_last_token_comes_from_where_the_plan_says() -> None:
    rows = Rows(4, 16, 1, BLOCK)
    for row in range(4):
        rows.begin(new_row(row, [100 + row] * 3, [[1]]))
    rows.append_samples(int32(1, 2), int32(3, 3), int32(55, 66), 8)
    ends = int32(3, 4, 4, 4)
    wrong = rows.resolve(int32(0, 1, 2, 3), ends, int32(STORED, 8, 9, VALUE), int32(0, 0, 0, 77))
    assert wrong.tolist() == [False, False, True, False]  # row 2 has a sample of step 8, not of 9
    assert rows.tokens[3, 3] == 77
    assert rows.tokens[1, 3] == 55
    assert rows.resolve(int32(0), int32(4), int32(STORED), int32(0)).tolist() == [True]  # it has 3 tokens only


@pytest.mark.parametrize("seed", range(20))
def test_assembly_equals_a_plain_loop(seed: int) -> None:
    rng = random.Random(seed)
    num_rows = rng.randrange(1, 12)
    rows = Rows(num_rows, 40, 2, BLOCK)
    for row in range(num_rows):
        tokens = [rng.randrange(1000) for _ in range(rng.randrange(1, 41))]
        blocks = -(-len(tokens) // BLOCK)
        rows.begin(new_row(row, tokens, [[rng.randrange(1, 500) for _ in range(blocks)] for _ in range(2)]))
    assembly = Assembly(rows, 40 * num_rows, num_rows)
    for decode_only in (False, True):
        chosen = rng.sample(range(num_rows), rng.randrange(1, num_rows + 1))
        starts, counts = [], []
        for row in chosen:
            known = int(rows.known[row])
            start = known - 1 if decode_only else rng.randrange(known)
            starts.append(start)
            counts.append(1 if decode_only else rng.randrange(1, known - start + 1))
        batch = assembly.assemble(int32(*chosen), int32(*starts), int32(*counts))
        flat = [(i, row, p) for i, (row, s, c) in enumerate(zip(chosen, starts, counts)) for p in range(s, s + c)]
        assert batch.num_tokens == len(flat)
        assert batch.num_rows == len(chosen)
        assert batch.tokens.tolist() == [rows.tokens[row, p] for _, row, p in flat]
        assert batch.positions.tolist() == [p for _, _, p in flat]
        assert batch.row_starts.tolist() == [0, *np.cumsum(counts).tolist()]
        assert batch.lengths.tolist() == [s + c for s, c in zip(starts, counts)]
        assert batch.max_count == max(counts)
        # of single tokens always the same, rounded up: here to the longest context that there can be
        assert batch.max_length == (40 if max(counts) == 1 else max(s + c for s, c in zip(starts, counts)))
        for group in range(2):
            table = rows.tables[group]
            assert batch.slots[group].tolist() == [int(table[row, p // BLOCK]) * BLOCK + p % BLOCK for _, row, p in flat]
            for i, row in enumerate(chosen):
                used = -(-(starts[i] + counts[i]) // BLOCK)
                assert batch.tables[group][i, :used].tolist() == table[row, :used].tolist()
            assert batch.tables[group].is_contiguous()


def test_columns_are_not_aliased_by_the_message() -> None:
    """A message's columns are read-only views of its bytes; the row's own buffers must not be."""
    rows = Rows(1, 16, 1, BLOCK)
    rows.begin(new_row(0, [1, 2], [[3]]))
    rows.append_samples(int32(0), int32(2), int32(9), 0)
    assert rows.tokens[0, :3].tolist() == [1, 2, 9]
    assert not unpack(pack([1])).flags.writeable
