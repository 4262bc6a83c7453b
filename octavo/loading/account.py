"""The account: every tensor on disk is used exactly once or declared as skipped, and every parameter found one. All faults in one list."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from octavo.checkpoint.entry import Entry
from octavo.checkpoint.names import HARMLESS, Names, Skip, View
from octavo.errors import CheckpointError

SHOWN = 40


@dataclass(slots=True)
class Account:
    """uses: by the tensor's name on disk: through which views, by which parameter, how many elements."""

    entries: dict[str, Entry]
    faults: list[str] = field(default_factory=list)
    uses: dict[str, dict[tuple[View, ...], tuple[str, int]]] = field(default_factory=dict)

    def use(self, disk: str, views: tuple[View, ...], path: str, num_elements: int) -> None:
        """`path` reads `num_elements` of the tensor `disk`."""
        known = self.uses.setdefault(disk, {})
        if views in known:
            self.faults.append(f"{disk} is used twice: by {known[views][0]} and by {path}")
        known[views] = (path, num_elements)

    def unused(self, tables: Iterable[Names]) -> list[str]:
        """Faults: tensors that nothing uses, uses only in part, or uses twice, unless they are declared as skipped."""
        faults = []
        skips = [Names(skips=HARMLESS), *tables]
        for name, entry in self.entries.items():
            if name not in self.uses:
                if not any(table.skipped(name) for table in skips):
                    faults.append(f"{name} {list(entry.shape)} is used by no part of the model")
                continue
            used = sum(count for _, count in self.uses[name].values())
            if used != entry.num_elements:
                paths = ", ".join(path for path, _ in self.uses[name].values())
                faults.append(f"{name} {list(entry.shape)}: {used} of {entry.num_elements} elements are used, by {paths}")
        return faults


def missing(path: str, ways: Sequence[str]) -> str:
    """The fault of a parameter that was not found; `ways`: the names it was looked for under, the parameter's own among them."""
    others = [way for way in ways if way != path]
    return f"{path} is missing" + (f" (looked for as {', '.join(others)})" if others else "")


def duplicates(tables: Iterable[Names]) -> list[Skip]:
    """The declared skips that must equal what they repeat."""
    return [skip for table in tables for skip in table.skips if skip.same_as is not None]


def refuse(where: object, faults: Sequence[str]) -> None:
    """Raise CheckpointError with the list of faults, if there are any."""
    if not faults:
        return
    shown = [*faults[:SHOWN], *([f"and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else [])]
    kinds = {"missing": " is missing", "unused": " is used by no part of the model"}
    has = {kind: any(text in fault for fault in faults) for kind, text in kinds.items()}
    if has["missing"] and has["unused"]:
        hint = "the tensors' names are not this model type's: is model_type in config.json right, is it a base model or an adapter?"
    elif has["missing"]:
        hint = "the files are not whole: fetch the model again"
    elif has["unused"]:
        hint = "config.json does not describe this checkpoint: a wrong model_type, number of layers or bias switch?"
    else:
        hint = "config.json and the weights do not belong together"
    count = "one fault" if len(faults) == 1 else f"{len(faults)} faults"
    raise CheckpointError(f"{where}: {count} in the checkpoint:\n  " + "\n  ".join(shown), hint)
