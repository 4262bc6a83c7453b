"""Zero: a stretch of memory set to zero by a kernel, so that it is one of a tape's."""

from octavo.ops.cpu import compile, pool, vectors


def build():
    """One unit. arguments: an address, and how many int64 numbers lie there."""
    int64s = vectors.int64s

    def body(begin, end, arguments):
        a = int64s(arguments)
        numbers = int64s(a[0])
        for i in range(a[1]):
            numbers[i] = 0

    return body


class Zero:
    def __init__(self) -> None:
        self._kernel = compile.kernel(build)
        self._arguments = pool.Arguments(2)

    def __call__(self, address: int, size_bytes: int) -> None:
        """size_bytes: a multiple of 8."""
        self._arguments.set(address, size_bytes // 8)
        self._kernel(1, 1, self._arguments)
