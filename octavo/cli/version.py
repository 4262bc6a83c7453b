"""octavo version: of octavo, and with --json of what it runs on."""

import json
import platform

from octavo import __version__
from octavo.cli.parser import Parser


def parser() -> Parser:
    """The command line of `octavo version`."""
    result = Parser(prog="octavo version", description="Print the version.")
    result.add_argument("--json", action="store_true", help="with Python's version and the platform, as JSON")
    return result


def run(argv: list[str]) -> int:
    facts = {"octavo": __version__, "python": platform.python_version(), "platform": platform.platform()}
    print(json.dumps(facts) if parser().parse_args(argv).json else __version__)
    return 0
