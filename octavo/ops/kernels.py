"""Kernels of a device: where compiled ones are kept, which this process loaded or compiled, and which others are needed."""

import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from octavo.ops.op import choose
from octavo.ops.order import ORDER


def folder(device: str = "cpu") -> Path:
    """Where kernels for this machine are kept."""
    return Path(_compiler(device).cache_folder())


def tally(device: str = "cpu") -> Any:
    """loaded, compiled: names of files; compile_s. Of this process so far."""
    return _compiler(device).tally


def team(device: str = "cpu") -> Any:
    """The threads that compute: keep_apart(), to be called between steps, sees to it that each has a core."""
    return importlib.import_module(f"octavo.ops.{device}.team").Team()


def told(device: str = "cpu") -> str:
    """A line for the log."""
    found = tally(device)
    took = f" in {found.compile_s:.1f} s" if found.compiled else ""
    return f"{len(found.loaded)} loaded, {len(found.compiled)} compiled{took}; kept in {folder(device)}"


def planning(device: str = "cpu") -> AbstractContextManager[Any]:
    """Inside it kernels are named and not made; its value is a tally."""
    context: AbstractContextManager[Any] = _compiler(device).planning()
    return context


def level(device: str = "cpu") -> str:
    """The kind of processor that kernels are made for."""
    return str(importlib.import_module(f"octavo.ops.{device}.features").level())


def facts_of(op: str) -> Iterator[Any]:
    """The facts of every case that an op names."""
    module = importlib.import_module(f"octavo.ops.{op}")
    for case in module.cases():
        yield case.facts if hasattr(case, "facts") else module.Facts(case.vocab_size)


def make_all(device: str = "cpu") -> None:
    """Make what any model may need: the kernels of every case that each op names, in every dtype that has some."""
    for op in ORDER[device]:
        for facts in facts_of(op):
            choose(op, facts, device)


def _compiler(device: str) -> Any:
    return importlib.import_module(f"octavo.ops.{device}.compile")
