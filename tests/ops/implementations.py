"""An op's implementation by the name that the order has for it."""

import importlib


def implementation(op: str, name: str) -> type:
    """The class; octavo.ops.<op>.Reference for "reference"."""
    if name == "reference":
        return importlib.import_module(f"octavo.ops.{op}").Reference
    return importlib.import_module(f"octavo.ops.{name}").Implementation
