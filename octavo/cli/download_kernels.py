"""octavo download-kernels: compiles kernels before they are needed. They are made on the machine itself: nothing is downloaded."""

import json
import sys
from typing import Any

from octavo import environment, logging, plugins
from octavo.cli.parser import Parser, add_options
from octavo.config.options import Options


def parser() -> Parser:
    """The command line of `octavo download-kernels`."""
    result = Parser(
        prog="octavo download-kernels",
        description="Compile the kernels of MODEL with these options, or without MODEL those that any model may need, and keep them.",
    )
    result.add_argument("model_tag", nargs="?", metavar="MODEL", help="a folder, a .gguf file, a hub id or a catalog name")
    result.add_argument("--dry-run", action="store_true", help="tell which kernels are missing, and compile none")
    result.add_argument("--json", action="store_true", help="tell it as JSON")
    add_options(result, Options)
    return result


def run(argv: list[str]) -> int:
    typed: dict[str, Any] = vars(parser().parse_args(argv))
    tag, is_dry, as_json = (typed.pop(name) for name in ("model_tag", "dry_run", "json"))
    if tag is not None:
        typed["model"] = tag
    logging.configure(environment.logging_level(), "kernels")
    config = None
    if "model" in typed:
        from octavo.config.resolve import resolve

        config = resolve(Options(**typed), "server")
    elif typed:
        parser().error(f"--{next(iter(typed)).replace('_', '-')} needs a MODEL")
    if not is_dry:
        print("compiling; what is there already is kept", file=sys.stderr)
    kept = plugins.load("worker", "kernels").prepare(config, is_dry)
    print(json.dumps(kept) if as_json else told(kept, is_dry))
    return 0


def told(kept: dict[str, Any], is_dry: bool) -> str:
    """For people: each kernel that was missing, and a line that sums up."""
    compiled, present = kept["compiled"], kept["present"]
    lines = [f"  {name}" for name in compiled]
    what = "missing" if is_dry else f"compiled in {kept['compile_s']:.1f} s"
    lines.append(f"{len(compiled)} kernels {what}, {len(present)} there before, in {kept['folder']}")
    return "\n".join(lines)
