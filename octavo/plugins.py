"""Plugins: a name that users type is the name of a file, and this is the only place that looks one up."""

import difflib
import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

from octavo.errors import ConfigError, OctavoError

_added: dict[str, dict[str, ModuleType]] = {}  # by room: the files that the operator named, by name


class UnknownNameError(OctavoError, ValueError):
    """No file of that name in the room."""


def file_name(name: str) -> str:
    """The module name for a name as users type it: `CPU_ATTN` -> `cpu_attn`, `qwen2-moe` -> `qwen2_moe`."""
    return name.lower().replace("-", "_").replace(".", "_")


def names(room: str) -> list[str]:
    """The public names in a room (`models`, `quant`, `scheduler.limits`, ...), sorted. Imports only the room itself."""
    package = importlib.import_module(f"octavo.{room}")
    return sorted({*(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")), *_added.get(room, {})})


def load(room: str, name: str) -> ModuleType:
    """The module `octavo.<room>.<name>`.

    Raises UnknownNameError, with the known names and the nearest one, if there is none.
    """
    module = file_name(name)
    if (added := _added.get(room, {}).get(module)) is not None:
        return added
    if not module.isidentifier() or importlib.util.find_spec(f"octavo.{room}.{module}") is None:
        known = names(room)
        near = difflib.get_close_matches(module, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UnknownNameError(f"{room}: unknown name {name!r}", f"{hint}known: {', '.join(known)}")
    return importlib.import_module(f"octavo.{room}.{module}")


def add_file(room: str, path: Path, attribute: str) -> str:
    """Run a Python file that the operator named, as one more file of the room, for this process. Returns its name: the file's.

    attribute: what a file of the room holds. Raises ConfigError if it does not, if it cannot be run, or if the room has a file of that
    name already. The same file once more changes nothing.
    """
    name = file_name(path.stem)
    before = _added.get(room, {}).get(name)
    if before is not None and before.__file__ == str(path.resolve()):
        return name
    if not path.is_file() or not name.isidentifier():
        raise ConfigError(f"{str(path)!r} is no Python file to add to {room}", "name a file whose name is the name that is to be typed")
    if name in names(room):
        raise ConfigError(f"{str(path)!r} would hide {room}'s own {name!r}", "give the file another name")
    spec = importlib.util.spec_from_file_location(f"octavo_added.{room}.{name}", path.resolve())
    if spec is None or spec.loader is None:
        raise ConfigError(f"{str(path)!r} is no Python file", "its name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as fault:
        del sys.modules[spec.name]
        raise ConfigError(
            f"{str(path)!r} cannot be run: {type(fault).__name__}: {fault}", "it is imported as any Python file is"
        ) from fault
    if not hasattr(module, attribute):
        del sys.modules[spec.name]
        raise ConfigError(f"{str(path)!r} holds no {attribute}", f"the files in octavo/{room.replace('.', '/')} are examples")
    _added.setdefault(room, {})[name] = module
    return name
