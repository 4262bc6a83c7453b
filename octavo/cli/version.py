"""octavo version."""

from octavo import __version__


def run(argv: list[str]) -> int:
    print(__version__)
    return 0
