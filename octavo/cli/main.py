"""`octavo`: finds the command and runs it. Only the command that runs is imported."""

import importlib
import sys

from octavo import __version__
from octavo.errors import OctavoError

# command -> what it does; its file is octavo/cli/<command>.py, `-` as `_`
COMMANDS = {
    "serve": "start the HTTP server for a model",
    "chat": "talk to a running server",
    "complete": "continue a text on a running server",
    "run-batch": "answer the requests of a file",
    "cache": "list or remove what octavo keeps on disk",
    "collect-env": "describe this machine and installation",
    "download-kernels": "compile the kernels before they are needed",
    "version": "print the version",
}


def main(argv: list[str] | None = None) -> int:
    """Run a command. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else 2
    if words[0] in ("-v", "-V", "--version"):
        words = ["version"]
    command = words[0]
    if command not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(command, COMMANDS, n=1)
        print(f"octavo: unknown command {command!r}" + (f"; did you mean {near[0]}?" if near else ""), file=sys.stderr)
        print(f"hint: the commands are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        return int(importlib.import_module(f"octavo.cli.{command.replace('-', '_')}").run(words[1:]))
    except OctavoError as error:
        print(f"octavo {command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def usage() -> str:
    lines = [f"octavo {__version__}: an inference and serving engine for large language models", "", "usage: octavo COMMAND ...", ""]
    lines += [f"  {name:<18} {text}" for name, text in COMMANDS.items()]
    lines += ["", "octavo COMMAND --help tells a command's options. A first try: octavo serve smollm2"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
