"""octavo serve MODEL: options from the command line, then the server."""

import signal
import sys
from typing import Any

from octavo.cli.parser import Parser, add_options
from octavo.config.options import Options, ServerOptions, option_names


def parser() -> Parser:
    """The command line of `octavo serve`."""
    result = Parser(prog="octavo serve", description="Start the HTTP server for a model.")
    result.add_argument(
        "model_tag", nargs="?", metavar="MODEL", help="a folder, a .gguf file, a hub id or a catalog name (default: smollm2)"
    )
    add_options(result, ServerOptions)
    add_options(result, Options)
    return result


def parse(argv: list[str]) -> tuple[Options, ServerOptions]:
    """Options as typed."""
    typed: dict[str, Any] = vars(parser().parse_args(argv))
    tag = typed.pop("model_tag")
    if "model" in typed and any(word.partition("=")[0] == "--model" for word in argv):
        print("octavo serve: --model is taken; the model is better given as `octavo serve MODEL`", file=sys.stderr)
    if tag is not None:
        typed["model"] = tag
    names = option_names(Options)
    engine = Options(**{k: v for k, v in typed.items() if k in names})
    return engine, ServerOptions(**{k: v for k, v in typed.items() if k not in names})


def run(argv: list[str]) -> int:
    options, server_options = parse(argv)
    # the server ends in order only when it has been loaded; until then the signals of service managers and terminals act as Ctrl-C does
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    from octavo.engine.connection import launch_early

    launched = launch_early(options)  # first of all: its libraries take longer to load than ours
    try:
        from octavo.server.run import serve

        return serve(options, server_options, launched)
    finally:
        if launched is not None:
            launched.close()
