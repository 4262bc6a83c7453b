"""octavo chat: a conversation with a running server. Ctrl-C stops an answer, Ctrl-D leaves."""

from collections.abc import Iterator
from typing import Any

from octavo import environment
from octavo.cli import remote
from octavo.cli.parser import Parser
from octavo.cli.remote import Answer, Piece, Server


def parser() -> Parser:
    """The command line of `octavo chat`."""
    result = Parser(prog="octavo chat", description="Talk to a running server. Each line that is typed or piped in is a message.")
    remote.add_arguments(result, "MESSAGE")
    result.add_argument("--system-prompt", metavar="TEXT", help="said to the model before anything else")
    return result


def run(argv: list[str]) -> int:
    args = parser().parse_args(argv)
    server = Server(args.url, args.api_key or environment.api_key())
    model = args.model_name or server.models()[0]
    messages: list[dict[str, str]] = [{"role": "system", "content": args.system_prompt}] if args.system_prompt else []

    def ask(question: str) -> Answer:
        asked = {"role": "user", "content": question}
        answer = Answer(pieces, args.stats).read(server, "/chat/completions", {"model": model, "messages": [*messages, asked]})
        if answer.text:  # else it is as if it had not been asked: an empty message is not for every template
            messages.extend((asked, {"role": "assistant", "content": answer.text}))
        return answer

    if args.quick is not None:
        return remote.quietly(lambda: remote.quick(args.quick, ask))
    return remote.quietly(lambda: remote.converse(f"{model} at {args.url}. Ctrl-C stops an answer, Ctrl-D leaves.", ask))


def pieces(chunk: dict[str, Any]) -> Iterator[Piece]:
    """What a chunk of a chat says."""
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        if thought := delta.get("reasoning") or delta.get("reasoning_content"):
            yield Piece(thought, is_reasoning=True)
        if text := delta.get("content"):
            yield Piece(text)
