"""`octavo`: finds the command and runs it. Only the command that runs is imported."""

import importlib
import sys

from octavo import __version__
from octavo.errors import OctavoError

# command -> what it does; its file is octavo/cli/<command>.py, `-` as `_`
COMMANDS = {
    "serve": "start the HTTP server for a model",
    "plan": "compute what a model takes on given hardware",
    "bench": "measure a server or an engine",
    "chat": "talk to a running server",
    "completion": "print the completion script of a shell",
    "complete": "continue a text on a running server",
    "run-batch": "answer the requests of a file",
    "quantize": "write a checkpoint again in fewer bits",
    "cache": "list or remove what octavo keeps on disk",
    "collect-env": "describe this machine and installation",
    "download-kernels": "compile the kernels before they are needed",
    "version": "print the version",
}


def main(argv: list[str] | None = None) -> int:
    """Run a command. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        while words and words[0].startswith("--color"):
            words = _choose_color(words)
        if words[:1] == ["help"] and len(words) > 1:
            words = [words[1], "--help", *words[2:]]
        if not words or words[0] in ("-h", "--help", "help", "--help=all"):
            print(usage())
            return 0 if words else 2
        if words[0] in ("-v", "-V", "--version"):
            words = ["version"]
        command = words[0]
        if command not in COMMANDS:
            return _unknown(command)
        return int(importlib.import_module(f"octavo.cli.{command.replace('-', '_')}").run(words[1:]))
    except OctavoError as error:
        print(f"octavo {words[0] if words else ''}: {error}".replace(" :", ":"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read the output has had enough
        sys.stderr.close()
        return 1


def _choose_color(words: list[str]) -> list[str]:
    from octavo.cli import terminal

    _, equals, value = words[0].partition("=")
    terminal.choose(value if equals else (words[1:2] or [""])[0])
    return words[1:] if equals else words[2:]


def _unknown(command: str) -> int:
    import difflib

    near = difflib.get_close_matches(command, COMMANDS, n=1)
    print(f"octavo: unknown command {command!r}" + (f"; did you mean {near[0]}?" if near else ""), file=sys.stderr)
    print(f"hint: the commands are {', '.join(COMMANDS)}", file=sys.stderr)
    return 2


def usage() -> str:
    width = max(map(len, COMMANDS)) + 2
    lines = [f"octavo {__version__}: an inference and serving engine for large language models", "", "usage: octavo COMMAND ...", ""]
    lines += [f"  {name:<{width}}{text}" for name, text in COMMANDS.items()]
    lines += ["", "octavo COMMAND --help tells a command's options. A first try: octavo serve smollm2"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
