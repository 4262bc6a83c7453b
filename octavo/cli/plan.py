"""octavo plan MODEL: what a model takes on given hardware, from its configuration alone; any serve command line may be given."""

import argparse
from typing import Any

from octavo import plugins
from octavo.cli.actions import Refusal
from octavo.cli.parser import Parser, add_options
from octavo.config.options import Options, PlanOptions, ServerOptions, option_names

# what octavo does not do yet, but can plan
LAYOUT = {
    "tensor_parallel_size": "tensor",
    "pipeline_parallel_size": "pipeline",
    "data_parallel_size": "data",
    "prefill_context_parallel_size": "prefill_context",
    "decode_context_parallel_size": "decode_context",
    "enable_expert_parallel": "is_expert_parallel",
    "api_server_count": "api_servers",
}


class PlanParser(Parser):
    """Keeps what `octavo serve` would refuse: a plan takes it in, or says that it does not."""

    def refuse(self, typed: argparse.Namespace, refused: dict[str, Refusal]) -> None:
        typed.refused = refused


def parser() -> Parser:
    """The command line of `octavo plan`."""
    result = PlanParser(
        prog="octavo plan", description="Compute memory, communication and speed of a model on given hardware. Nothing is loaded."
    )
    result.add_argument(
        "model_tag", nargs="?", metavar="MODEL", help="as for serve; of a hub model config.json alone is fetched (default: smollm2)"
    )
    add_options(result, PlanOptions)
    add_options(result, ServerOptions)
    add_options(result, Options)
    return result


def run(argv: list[str]) -> int:
    return int(plugins.load("planning", "command").run(*read(argv)))


def read(argv: list[str]) -> tuple[Options, PlanOptions, dict[str, Any], list[str]]:
    """Words as typed: the engine's options, the plan's own, the sizes of the layout by their names in Topology, and what is left out."""
    typed: dict[str, Any] = vars(parser().parse_args(_words(argv)))
    refused: dict[str, Refusal] = typed.pop("refused", {})
    tag = typed.pop("model_tag")
    if tag is not None:
        typed["model"] = tag
    names, own = option_names(Options), option_names(PlanOptions)
    plan_options = PlanOptions(**{name: typed.pop(name) for name in list(typed) if name in own})
    options = Options(**{name: value for name, value in typed.items() if name in names})
    layout = {LAYOUT[name]: refusal.value for name, refusal in refused.items() if name in LAYOUT}
    notes = [f"not in this plan: {refusal.said}" for name, refusal in refused.items() if name not in LAYOUT]
    return options, plan_options, layout, notes


def _words(argv: list[str]) -> list[str]:
    """`-- serve MODEL ...`, as it would be run, with or without the program's name."""
    if "--" not in argv:
        return argv
    place = argv.index("--")
    command = argv[place + 1 :]
    if command and command[0].rpartition("/")[2] in ("octavo", "vllm"):
        command = command[1:]
    return argv[:place] + (command[1:] if command[:1] == ["serve"] else command)
