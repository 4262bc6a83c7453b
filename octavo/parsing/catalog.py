"""The catalog: which formats there are, what a name means, and which format a model's chat template or type shows."""

import difflib
from pathlib import Path
from typing import Literal, NamedTuple

from octavo import plugins
from octavo.errors import ConfigError
from octavo.parsing import vllm_names
from octavo.parsing.channels import Channels
from octavo.parsing.formats import ReasoningFormat, ToolFormat
from octavo.parsing.origin import Origin

Kind = Literal["tools", "reasoning"]
FLAGS: dict[Kind, str] = {"tools": "--tool-call-parser", "reasoning": "--reasoning-parser"}
PLUGIN_FLAGS: dict[Kind, str] = {"tools": "--tool-parser-plugin", "reasoning": "--reasoning-parser-plugin"}
_VLLM: dict[Kind, dict[str, str]] = {"tools": vllm_names.TOOLS, "reasoning": vllm_names.REASONING}


class Choice(NamedTuple):
    """name: of the format, None where there is none; reason: of it, for the log."""

    name: str | None
    reason: str


def names(kind: Kind) -> list[str]:
    """The formats that can be named, those of added files included."""
    return plugins.names(f"parsing.{kind}")


def add_file(kind: Kind, path: str) -> str:
    """Add the format that a Python file of the operator holds, named as the file is. Raises ConfigError."""
    return plugins.add_file(f"parsing.{kind}", Path(path), "FORMAT")


def origin(kind: Kind, name: str) -> Origin | None:
    """Where a format comes from; None if its file does not say."""
    found: Origin | None = getattr(plugins.load(f"parsing.{kind}", name), "ORIGIN", None)
    return found


def table(kind: Kind, name: str) -> ToolFormat | ReasoningFormat | Channels:
    """The format of that name."""
    found: ToolFormat | ReasoningFormat | Channels = plugins.load(f"parsing.{kind}", name).FORMAT
    return found


def settle(kind: Kind, name: str | None, *, template: str | None = None, model_type: str | None = None) -> Choice:
    """What the flag's value means for this model: a format's name as the room has it, or what `auto` finds.

    Raises ConfigError for a name that is none, with the nearest one.
    """
    if name is None or name == "":
        return Choice(None, f"{FLAGS[kind]} is not given")
    if name == "auto":
        return _found(kind, template, model_type)
    if plugins.file_name(name) not in names(kind):
        raise _unknown(kind, name)
    return Choice(plugins.file_name(name), f"{FLAGS[kind]} names it")


def _found(kind: Kind, template: str | None, model_type: str | None) -> Choice:
    origins = {name: found for name in names(kind) if (found := origin(kind, name)) is not None}
    by_template = [name for name, found in origins.items() if template and found.fits(template)]
    by_type = [name for name, found in origins.items() if model_type in found.model_types]
    both = [name for name in by_template if name in by_type]
    for candidates, reason in ((both, "template and type"), (by_template, "chat template"), (by_type, f"type {model_type}")):
        if len(candidates) == 1:
            return Choice(candidates[0], f"the model's {reason} show it")
        if candidates:
            return Choice(None, f"the model's {reason} fit {', '.join(candidates)}: {FLAGS[kind]} has to name one")
    return Choice(None, f"neither the model's chat template nor its type ({model_type}) shows one")


def _unknown(kind: Kind, name: str) -> ConfigError:
    what = "tool format" if kind == "tools" else "reasoning format"
    known = ["auto", *names(kind)]
    if name in _VLLM[kind]:
        same = _VLLM[kind][name]
        hint = (
            f"{same} reads what those models write"
            if same
            else f"a file given with {PLUGIN_FLAGS[kind]} can add it; octavo has {', '.join(known)}"
        )
        return ConfigError(f"{FLAGS[kind]}: octavo has no {what} {name!r}; vLLM has", hint)
    near = difflib.get_close_matches(plugins.file_name(name), known, n=2, cutoff=0.6)
    return ConfigError(
        f"{FLAGS[kind]}: unknown {what} {name!r}", (f"did you mean {' or '.join(near)}? " if near else "") + f"known: {', '.join(known)}"
    )
