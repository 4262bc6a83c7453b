"""Decoding rows of codes with scales: a weight row as plain numbers along the depth, rounded to the dtype of the product."""

import functools

from octavo.ops.cpu import codes, compile, features, vectors

# places in the arguments, from the weight's first on: see `addresses`
CODES, ROW_BYTES, SCALES, NUM_GROUPS, ZEROS, MINIMUMS, ROW_SCALES, SCALE_ROWS, GROUPS, TABLE, OUTER, STARTS, SHIFT = range(13)
NUM_ADDRESSES = 13
_OPTIONAL = ("zeros", "minimums", "row_scales", "scale_rows", "groups", "scale_table", "outer_scales", "outer_starts", "scale_shift")


def addresses(layout, tensors):
    """The NUM_ADDRESSES numbers of a weight that a kernel's arguments hold."""
    named = dict(zip(layout.names, tensors, strict=True))
    optional = [0 if (tensor := named.get(name)) is None else tensor.data_ptr() for name in _OPTIONAL]
    coded, scales = named["codes"], named["scales"]
    return (coded.data_ptr(), coded.shape[1], scales.data_ptr(), scales.shape[1], *optional)


@functools.cache
def _scale_at(layout):
    """scale_at(arguments, first, scale_row, place) -> float32: the scale that stands at `place`, in row `scale_row` of scales."""
    if not layout.nested:
        read_scale = codes.read_scale(layout.scale)

        @compile.inner
        def plain(a, first, scale_row, place):
            return read_scale(a[first + SCALES], place)

        return plain
    nested, int32s, floats, single, read_byte = layout.nested, vectors.int32s, vectors.floats, vectors.single, codes.read_byte

    @compile.inner
    def from_code(a, first, scale_row, place):
        position = int32s(a[first + STARTS])[scale_row] + place - scale_row * a[first + NUM_GROUPS]
        value = floats(a[first + TABLE])[read_byte(a[first + SCALES] + place)]
        wide = single(value * floats(a[first + OUTER])[position // nested])
        return single(wide + floats(a[first + SHIFT])[0])

    return from_code


@functools.cache
def row(layout, dtype):
    """decode(arguments, first, row, columns, out): row `row` of the weight at arguments[first ..] as `columns` numbers of `dtype`."""
    lanes, size = features.lanes(), vectors.SIZES[dtype]
    group, has_zeros, has_minimums = layout.group, layout.has_zeros, layout.has_minimums
    has_row_scales, shares, maps = layout.has_row_scales, layout.shares_scale_rows, layout.has_column_groups
    is_vector = not maps and group % lanes == 0 and layout.bits in (2, 4, 8)
    read_code, scale_at = codes.read_code(layout.code), _scale_at(layout)
    read_scale = codes.read_scale("float32" if layout.nested else layout.scale)
    load = codes.load_codes(layout.code, lanes) if is_vector else None
    write, store, splat = vectors.write(dtype), vectors.store(dtype, lanes), vectors.splat(lanes)
    int32s, floats, single, read_byte = vectors.int32s, vectors.floats, vectors.single, codes.read_byte

    @compile.inner
    def one(a, first, row, column, scale_row, place):
        """A single number; place: the index of its scale."""
        number = read_code(a[first + CODES] + row * a[first + ROW_BYTES], column)
        if has_zeros:
            number = single(number - single(read_byte(a[first + ZEROS] + place)))
        number = single(number * scale_at(a, first, scale_row, place))
        if has_minimums:
            number = single(number + read_scale(a[first + MINIMUMS], place))
        if has_row_scales:
            number = single(number * floats(a[first + ROW_SCALES])[row])
        return number

    @compile.inner
    def by_one(a, first, row, begin, end, out):
        scale_row = int32s(a[first + SCALE_ROWS])[row] if shares else row
        start = scale_row * a[first + NUM_GROUPS]
        for column in range(begin, end):
            if maps:
                index = int32s(a[first + GROUPS])[column]
            else:
                index = column // group if group else 0
            write(out + column * size, one(a, first, row, column, scale_row, start + index))

    if not is_vector:

        @compile.inner
        def decode_slowly(a, first, row, columns, out):
            by_one(a, first, row, 0, columns, out)

        return decode_slowly

    @compile.inner
    def decode(a, first, row, columns, out):
        scale_row = int32s(a[first + SCALE_ROWS])[row] if shares else row
        place = scale_row * a[first + NUM_GROUPS]
        source = a[first + CODES] + row * a[first + ROW_BYTES]
        factor = splat(floats(a[first + ROW_SCALES])[row] if has_row_scales else single(1.0))
        whole = columns // lanes * lanes
        column = 0
        while column < whole:
            scale = splat(scale_at(a, first, scale_row, place))
            zero = splat(single(read_byte(a[first + ZEROS] + place)) if has_zeros else single(0.0))
            minimum = splat(read_scale(a[first + MINIMUMS], place) if has_minimums else single(0.0))
            end = min(whole, column + group) if group else whole
            while column < end:
                number = load(source, column)
                if has_zeros:
                    number = number - zero
                number = number * scale
                if has_minimums:
                    number = number + minimum
                if has_row_scales:
                    number = number * factor
                store(out + column * size, number)
                column += lanes
            place += 1
        by_one(a, first, row, whole, columns, out)

    return decode
