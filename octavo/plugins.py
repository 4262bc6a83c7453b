"""Plugins: a name that users type is the name of a file, and this is the only place that looks one up."""

import difflib
import importlib
import importlib.util
import pkgutil
from types import ModuleType

from octavo.errors import OctavoError


class UnknownNameError(OctavoError, ValueError):
    """No file of that name in the room."""


def file_name(name: str) -> str:
    """The module name for a name as users type it: `CPU_ATTN` -> `cpu_attn`, `qwen2-moe` -> `qwen2_moe`."""
    return name.lower().replace("-", "_").replace(".", "_")


def names(room: str) -> list[str]:
    """The public names in a room (`models`, `quant`, `scheduler.limits`, ...), sorted. Imports only the room itself."""
    package = importlib.import_module(f"octavo.{room}")
    return sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_"))


def load(room: str, name: str) -> ModuleType:
    """The module `octavo.<room>.<name>`.

    Raises UnknownNameError, with the known names and the nearest one, if there is none.
    """
    module = file_name(name)
    if not module.isidentifier() or importlib.util.find_spec(f"octavo.{room}.{module}") is None:
        known = names(room)
        near = difflib.get_close_matches(module, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UnknownNameError(f"{room}: unknown name {name!r}", f"{hint}known: {', '.join(known)}")
    return importlib.import_module(f"octavo.{room}.{module}")
