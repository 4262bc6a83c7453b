"""octavo run-batch: answers the requests of a file, without a server to keep."""

import dataclasses
from typing import Any

from octavo.cli.parser import Parser, add_options
from octavo.config.options import BatchOptions, Options, ServerOptions, option_names

# of the server's options those that change answers, what is logged, and where metrics are
TAKEN = frozenset(
    {
        "host",
        "port",
        "response_role",
        "trust_request_chat_template",
        "default_chat_template_kwargs",
        "return_tokens_as_token_ids",
        "enable_prompt_tokens_details",
        "enable_per_request_metrics",
        "fingerprint_mode",
        "fingerprint_value",
        "enable_log_requests",
        "enable_log_outputs",
        "max_log_len",
        "log_error_stack",
    }
)


def parser() -> Parser:
    """The command line of `octavo run-batch`."""
    result = Parser(prog="octavo run-batch", description="Answer the requests of a batch file, each line {custom_id, method, url, body}.")
    result.add_argument(
        "model_tag", nargs="?", metavar="MODEL", help="a folder, a .gguf file, a hub id or a catalog name (default: smollm2)"
    )
    add_options(result, BatchOptions)
    add_options(result, ServerOptions, skip=tuple(option_names(ServerOptions) - TAKEN))
    add_options(result, Options)
    return result


def parse(argv: list[str]) -> tuple[BatchOptions, Options, ServerOptions]:
    """Options as typed."""
    own = parser()
    typed: dict[str, Any] = vars(own.parse_args(argv))
    if (tag := typed.pop("model_tag")) is not None:
        typed["model"] = tag
    classes = (BatchOptions, Options, ServerOptions)
    batch, engine, server = (cls(**{k: v for k, v in typed.items() if k in option_names(cls)}) for cls in classes)
    for name, flag in (("input_file", "-i"), ("output_file", "-o")):
        if getattr(batch, name) is None:
            own.error(f"{flag} is missing")
    return batch, engine, dataclasses.replace(server)  # type: ignore[return-value]


def run(argv: list[str]) -> int:
    batch, options, server_options = parse(argv)
    from octavo.server.batch.run import run as run_batch

    return run_batch(batch, options, server_options)
