"""Rounding: a float32 vector as it would read after a trip through memory in another format."""

import functools

from numba.extending import intrinsic

from octavo.ops.cpu import vectors
from octavo.ops.cpu.vectors import FloatVector


@functools.cache
def round_to(dtype: str, lanes: int):
    """round_to(vector) -> vector, each lane the nearest number of `dtype` ("float32": unchanged)."""

    @intrinsic
    def round_vector(typing_context, vector):
        def generate(context, b, s, args):
            return args[0] if dtype == "float32" else vectors.widen_value(b, vectors.narrow_value(b, args[0]))

        return FloatVector(lanes)(FloatVector(lanes)), generate

    return round_vector
