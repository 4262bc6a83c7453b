"""Paged attention: one kernel for prompts, chunks and single tokens, in which a token's arithmetic never depends on its company.

The context is cut by a fixed grid of SPAN keys counted from position 0. Of each span a query makes its scores, their own maximum,
weights and weighted sum of values; these parts are folded in the order of the spans. Keys outside a window or after the query weigh
exactly 0, so how many of them lie in the same tile changes no bit. Units of work (attention_plan) go to whichever thread is free.
"""

import numpy as np

from octavo.ops.cpu import vectors
from octavo.ops.cpu.attention_plan import COUNTERS, UNIT, UNIT_ROWS
from octavo.ops.cpu.attention_softmax import softmax
from octavo.ops.cpu.attention_tiles import (
    AHEAD,
    PAIR,
    ROW_BYTES,
    SPAN,
    SPAN_TILES,
    first_lane,
    score_tiles,
    take_number,
    value_tiles,
)
from octavo.ops.cpu.cache_decode import tile_finding
from octavo.ops.cpu.compile import inner
from octavo.ops.pages import TILE

MOST_ROWS = 8  # of a block in registers
_ACCUMULATORS = {"avx512bf16": 24, "avx512": 24, "avx2": 5, "plain": 2}  # vectors of 16 numbers that fit in registers as sums
_LEVEL_ROWS = {"avx512bf16": 8, "avx512": 8, "avx2": 4, "plain": 2}
SUMS = 16  # float32 numbers after a part's values: its maximum and its total, padded to a cache line
_INFINITY = np.float32(np.inf)


def block_rows(level: str, group: int) -> tuple[int, int]:
    """(rows of a block in registers, rows of the blocks that remain) for `group` query heads a kv head."""
    most = _LEVEL_ROWS[level]
    if group <= most:
        return most // group * group, group
    divisors = [rows for rows in range(most, 0, -1) if group % rows == 0]
    return (divisors[0], divisors[0]) if 2 * divisors[0] >= most else (most, 1)


def value_columns(level: str, rows: int, head_dim: int) -> int:
    """Vectors of a row of values whose sums stay in registers at once: the most that divides the row."""
    total = head_dim // TILE
    return max(count for count in range(1, total + 1) if total % count == 0 and (count == 1 or count * rows <= _ACCUMULATORS[level]))


def row_distance(head_dim: int) -> int:
    """Numbers from row to row of a thread's own queries and results."""
    return -(-head_dim // 64) * 64


def _block(how: str, level: str, rows: tuple[int, int], wide: tuple[int, int], apart: int):
    """One block of rows over one span: their parts of the result, `apart` numbers apart, and (maximum, total) of each, SUMS apart.

    There are two sizes of a block, rows[0] and rows[1], with wide[0] and wide[1] vectors of values at once.
    """
    columns, columns_rest = (max(c for c in (1, 2, 4) if c == 1 or c * count <= _ACCUMULATORS[level]) for count in rows)
    score, score_rest = (score_tiles(how, count, c, apart) for count, c in zip(rows, (columns, columns_rest)))
    score_one, score_rest_one = (score_tiles(how, count, 1, apart) for count in rows)
    add_values, add_values_rest = (value_tiles(how, count, c, apart) for count, c in zip(rows, wide))
    most, step, step_rest = rows[0], wide[0] * TILE * 4, wide[1] * TILE * 4
    find_top, weigh = softmax(how)
    size, floats, doubles, infinity = ROW_BYTES[how], vectors.floats, vectors.doubles, _INFINITY
    _, _, _, at_scores, at_weights, *_ = places(how, apart, False)

    @inner
    def multiply_keys(queries, rows, tiles, keys, scores, head_dim):
        at = 0
        if rows == most:
            while at + columns <= tiles:
                score(queries, keys + at * 8, scores + at * TILE * 4, head_dim)
                at += columns
            while at < tiles:
                score_one(queries, keys + at * 8, scores + at * TILE * 4, head_dim)
                at += 1
        else:
            while at + columns_rest <= tiles:
                score_rest(queries, keys + at * 8, scores + at * TILE * 4, head_dim)
                at += columns_rest
            while at < tiles:
                score_rest_one(queries, keys + at * 8, scores + at * TILE * 4, head_dim)
                at += 1

    @inner
    def multiply_values(weights, rows, count, values, parts, head_dim):
        if rows == most:
            for offset in range(0, head_dim * 4, step):
                add_values(weights, values, offset, count, parts, head_dim)
        else:
            for offset in range(0, head_dim * 4, step_rest):
                add_values_rest(weights, values, offset, count, parts, head_dim)

    @inner
    def block(a, queries, row, rows, position, start, keys, values, first_tile, own, parts, sums):
        """Rows row..row+rows of the unit whose first token is at `position`, over the span from `start`. The tables begin at first_tile."""
        window, group, head_dim, end = a[17], a[22], a[23], start + SPAN
        scale, cap = np.float32(doubles(a[0])[0]), np.float32(doubles(a[0])[1])
        scores, weights = own + at_scores, own + at_weights
        low = max(start, position + row // group - window + 1) if window > 0 else start
        high = min(end, position + (row + rows - 1) // group + 1)
        tile = low // TILE
        tiles = (high + TILE - 1) // TILE - tile
        if high <= low:
            for r in range(rows):
                floats(sums + r * SUMS * 4)[0] = -infinity
            return
        skipped = (tile - first_tile) * 8
        at = tile - start // TILE  # in the span, to whose tiles the scores and weights have fixed places
        multiply_keys(queries, rows, tiles, keys + skipped, scores + at * TILE * 4, head_dim)
        first, last = at & -2, (at + tiles + 1) & -2
        for r in range(rows):
            mine = position + (row + r) // group
            row_low = max(start, mine - window + 1) if window > 0 else start
            row_high = min(end, mine + 1)
            find_top(scores + r * SPAN * 4, start, first, last, row_low, row_high, scale, cap, sums + r * SUMS * 4)
        for r in range(rows):
            weigh(scores + r * SPAN * 4, weights + r * SPAN * size, first, last, scale, cap, sums + r * SUMS * 4)
        multiply_values(weights + at * TILE * size, rows, high - tile * TILE, values + skipped, parts, head_dim)

    return block


def _folding(dtype: str):
    """(clear, fold, finish) of a row's running result: head_dim float32 numbers, then its maximum and total in `sums`."""
    load, store, splat = vectors.load("float32", TILE), vectors.store("float32", TILE), vectors.splat(TILE)
    store_out, exp, fma, floats = vectors.store(dtype, TILE), vectors.exp, vectors.fma, vectors.floats
    zero, one, size, infinity = np.float32(0.0), np.float32(1.0), vectors.SIZES[dtype], _INFINITY

    @inner
    def clear(result, sums, head_dim):
        for i in range(0, head_dim, TILE):
            store(result + i * 4, splat(zero))
        floats(sums)[0] = -infinity
        floats(sums)[1] = zero

    @inner
    def fold(result, sums, part, part_sums, head_dim):
        """The running result takes the next span's part."""
        top, part_top = floats(sums)[0], floats(part_sums)[0]
        if part_top == -infinity:
            return
        best, less = (top, part_top) if top > part_top else (part_top, top)
        small = exp(splat(less - best))
        mine, its = (splat(one), small) if top > part_top else (small, splat(one))
        for i in range(0, head_dim, TILE):
            store(result + i * 4, fma(load(result + i * 4), mine, load(part + i * 4) * its))
        floats(sums)[0] = best
        floats(sums)[1] = first_lane(fma(splat(floats(sums)[1]), mine, splat(floats(part_sums)[1]) * its))

    @inner
    def finish(result, sums, out, head_dim, sinks, head):
        top, total = floats(sums)[0], splat(floats(sums)[1])
        factor = splat(one) / total
        if sinks != 0:
            sink = floats(sinks)[head]
            best = top if top > sink else sink
            mine = exp(splat(top - best))
            factor = mine / fma(total, mine, exp(splat(sink - best)))
        for i in range(0, head_dim, TILE):
            store_out(out + i * size, load(result + i * 4) * factor)

    return clear, fold, finish


def _tile_finding(cache_size: int):
    """find_tiles(a, table, head, first, count, last, own, key_tiles, value_tiles): addresses of the keys and values of `count` tiles
    from tile `first`, in pages of plain numbers. a: the arguments of the kernel. last: of the tiles that the unit reads. own: the thread's
    space.
    """
    int64s, int32s = vectors.int64s, vectors.int32s

    @inner
    def find_tiles(a, table, head, first, count, last, own, key_tiles, value_tiles):
        pages, kv_heads, block_size, page_bytes, head_dim = a[7], a[15], a[16], a[19], a[23]
        values = kv_heads * block_size * head_dim * cache_size
        at = first * TILE
        index = at // block_size
        offset = at - index * block_size
        for tile in range(count):
            address = pages + int32s(table)[index] * page_bytes + (head * block_size + offset) * head_dim * cache_size
            int64s(key_tiles)[tile] = address
            int64s(value_tiles)[tile] = address + values
            offset += TILE
            if offset == block_size:
                index += 1
                offset = 0

    return find_tiles


def build(how: str, dtype: str, level: str, kept: tuple[str, str, int], rows: int, rest: int, wide: int, wide_rest: int, apart: int):
    """A body over threads: each takes units from a shared counter until none is left. The arguments are named in its docstring.

    kept: the code and the kind of scale of the cache, and for coded ones how many values of a row are decoded at once. rows, rest: see
    block_rows. wide, wide_rest: see value_columns. apart: see row_distance.
    """
    block = _block(how, level, (rows, rest), (wide, wide_rest), apart)
    clear, fold, finish = _folding(dtype)
    size, row_bytes, is_coded = vectors.SIZES[dtype], ROW_BYTES[how], kept[1] != "none"
    load, store_query = vectors.load(dtype, TILE), vectors.store("bfloat16" if how == "dot" else "float32", TILE)
    at_queries, at_results, at_sums, _, _, at_parts, at_part_sums, at_tiles, at_decoded, space = places(how, apart, is_coded)
    decoded_bytes = (space - at_decoded) // 2
    find_tiles = tile_finding(how, *kept, at_decoded, decoded_bytes) if is_coded else _tile_finding(number_bytes(how))
    int64s, int32s = vectors.int64s, vectors.int32s

    @inner
    def gather(query, token_bytes, head_bytes, tokens, group, head_dim, queries):
        for token in range(tokens):
            for head in range(group):
                source = query + token * token_bytes + head * head_bytes
                for i in range(0, head_dim, TILE):
                    store_query(queries + ((token * group + head) * apart + i) * row_bytes, load(source + i * size))

    @inner
    def take(a, item, is_whole, own):
        """One head of a unit; is_whole: this thread has the next head next, and after the last one maybe the next spans."""
        kv_heads, window, most_spans, group, head_dim = a[15], a[17], a[18], a[22], a[23]
        index = item // kv_heads
        head = item - index * kv_heads
        unit = int32s(a[12] + (int32s(a[12])[2] + index * UNIT) * 4)
        row, token, tokens = np.int64(unit[0]), np.int64(unit[1]), np.int64(unit[2])
        cut, pieces, origin = np.int64(unit[5]), np.int64(unit[6]), np.int64(unit[7])
        position = np.int64(int32s(a[11])[row]) - (int32s(a[10])[row + 1] - token)
        table = a[8] + row * a[9] * 4
        lines = tokens * group
        queries, results, sums = own + at_queries, own + at_results, own + at_sums
        gather(a[4] + token * a[5] + head * group * a[6], a[5], a[6], tokens, group, head_dim, queries)
        for line in range(lines):
            clear(results + line * apart * 4, sums + line * SUMS * 4, head_dim)
        kept = a[14] + (cut * kv_heads + head) * most_spans * group * (apart + SUMS) * 4  # of a cut token: [spans, group, apart + SUMS]
        last = (min(unit[4] * SPAN, position + tokens) - 1) // TILE
        for span in range(unit[3], unit[4]):
            start = span * SPAN
            low = max(start, position - window + 1) if window > 0 else start
            high = min(start + SPAN, position + tokens)
            first = low // TILE
            count = (high + TILE - 1) // TILE - first
            keys, key_values = own + at_tiles, own + at_tiles + count * 8
            find_tiles(a, table, head, first, count, last, own, keys, key_values)
            ahead = key_values + count * 8  # what is read next, to be fetched meanwhile
            left = 0
            if not is_coded:
                next_head, next_span = head, span + 1
                if next_span == unit[4] and is_whole:
                    next_head, next_span = (head + 1, np.int64(unit[3])) if head + 1 < kv_heads else (0, next_span)
                if next_span < unit[4] or is_whole:
                    low = max(next_span * SPAN, position - window + 1) if window > 0 else next_span * SPAN
                    high = min(low + AHEAD * TILE, position + tokens)
                    left = max((high + TILE - 1) // TILE - low // TILE, 0)
                    left = min(left, AHEAD)
                    find_tiles(a, table, next_head, low // TILE, left, last, own, ahead, ahead + AHEAD * 8)
            for tile in range(left, AHEAD):
                int64s(ahead)[tile] = int64s(keys)[0]
            line = 0
            while line < lines:
                to = queries + line * apart * row_bytes
                done = rows if lines - line >= rows else rest
                parts, part_sums = own + at_parts, own + at_part_sums
                if cut >= 0:
                    parts = kept + ((span - origin) * (apart + SUMS) * group + line * apart) * 4
                    part_sums = kept + ((span - origin) * (apart + SUMS) * group + group * apart + line * SUMS) * 4
                block(a, to, line, done, position, start, keys, key_values, first, own, parts, part_sums)
                if cut < 0:
                    for r in range(done):
                        at_result, at_sum = results + (line + r) * apart * 4, sums + (line + r) * SUMS * 4
                        fold(at_result, at_sum, parts + r * apart * 4, part_sums + r * SUMS * 4, head_dim)
                line += done
        if cut >= 0:
            done = a[12] + (COUNTERS + 16 + cut * kv_heads + head) * 4
            if take_number(done) != pieces - 1:
                return  # whoever ends last folds the parts of all
            int32s(done)[0] = 0
            for span in range(position // SPAN + 1 - origin):
                parts = kept + span * (apart + SUMS) * group * 4
                part_sums = parts + group * apart * 4
                for line in range(group):
                    at_result, at_sum = results + line * apart * 4, sums + line * SUMS * 4
                    fold(at_result, at_sum, parts + line * apart * 4, part_sums + line * SUMS * 4, head_dim)
        for line in range(lines):
            at = line // group
            which = head * group + line - at * group
            out = a[1] + (token + at) * a[2] + which * a[3]
            finish(results + line * apart * 4, sums + line * SUMS * 4, out, head_dim, a[20], which)

    def body(begin, end, arguments):
        """arguments: address of [scale, cap], out and its token and head strides, query and its strides, pages, tables and the
        numbers of a row of them, row_starts, lengths, plan, threads, kept parts, kv heads, block size, window, spans of a kept token,
        bytes between pages, sinks, threads' own space, heads a kv head, head dimension, scales."""
        a = int64s(arguments)
        units, kv_heads, threads = np.int64(int32s(a[12])[0]), a[15], a[13]
        whole = max(units - threads, 0)  # units whose heads, neighbours in memory, are one thread's; the last ones are shared out by heads
        turns = whole + (units - whole) * kv_heads
        for thread in range(begin, end):
            while True:
                turn = take_number(a[12] + COUNTERS * 4)
                if turn >= turns:
                    if turn == turns + threads - 1:  # the last thread to come
                        int32s(a[12])[COUNTERS] = 0
                    break
                item = turn * kv_heads if turn < whole else whole * kv_heads + turn - whole
                for at in range(item, item + kv_heads if turn < whole else item + 1):
                    take(a, at, turn < whole, a[21] + thread * space)

    return body


def number_bytes(how: str) -> int:
    """Of a number in a tile of keys or values."""
    return 4 // PAIR[how]


def places(how: str, apart: int, is_coded: bool) -> tuple[int, ...]:
    """Offsets in a thread's own space, and its size, all multiples of 64.

    Queries, results and their sums; then of a block scores, weights, parts and their sums; then addresses of tiles: keys, values, and what
    is next; then, where the cache is coded, the keys and the values of a span.
    """
    parts = (
        UNIT_ROWS * apart * ROW_BYTES[how],
        UNIT_ROWS * apart * 4,
        UNIT_ROWS * SUMS * 4,
        MOST_ROWS * SPAN * 4,
        MOST_ROWS * SPAN * ROW_BYTES[how],
        MOST_ROWS * apart * 4,
        MOST_ROWS * SUMS * 4,
        2 * (SPAN_TILES + AHEAD) * 8,
        2 * SPAN * apart * number_bytes(how) if is_coded else 0,
    )
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + (part + 63) // 64 * 64)
    return tuple(offsets)
