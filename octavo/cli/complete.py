"""octavo complete: texts continued by a running server, each by itself. Ctrl-C stops a continuation, Ctrl-D leaves."""

from collections.abc import Iterator
from typing import Any

from octavo import environment
from octavo.cli import remote
from octavo.cli.parser import Parser
from octavo.cli.remote import Answer, Piece, Server


def parser() -> Parser:
    """The command line of `octavo complete`."""
    result = Parser(prog="octavo complete", description="Continue texts on a running server. Each line that is typed or piped in is one.")
    remote.add_arguments(result, "TEXT")
    result.add_argument("--max-tokens", type=int, metavar="N", help="most tokens of a continuation; default: the server's, 16")
    return result


def run(argv: list[str]) -> int:
    args = parser().parse_args(argv)
    server = Server(args.url, args.api_key or environment.api_key())
    model = args.model_name or server.models()[0]
    limit = {} if args.max_tokens is None else {"max_tokens": args.max_tokens}

    def ask(text: str) -> Answer:
        return Answer(pieces, args.stats).read(server, "/completions", {"model": model, "prompt": text} | limit)

    if args.quick is not None:
        return remote.quietly(lambda: remote.quick(args.quick, ask))
    return remote.quietly(lambda: remote.converse(f"{model} at {args.url}. Ctrl-C stops a continuation, Ctrl-D leaves.", ask))


def pieces(chunk: dict[str, Any]) -> Iterator[Piece]:
    """What a chunk of a completion says."""
    for choice in chunk.get("choices") or ():
        if text := choice.get("text"):
            yield Piece(text)
