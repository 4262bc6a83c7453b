"""Variables: what the environment asks of octavo, judged at start. Every name of vLLM works, is refused, or gets a line in the log."""

import difflib
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from octavo import environment
from octavo.errors import ConfigError
from octavo.logging import get_logger

logger = get_logger(__name__)

_OFF, _ON = frozenset({"0", "false", "no", "off"}), frozenset({"1", "true", "yes", "on"})
# Kubernetes tells every pod of each service by variables; a service called vllm or octavo gives names like these
_OF_KUBERNETES = re.compile(r"(VLLM|OCTAVO)(_.*)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)")


class Variable(NamedTuple):
    """One line of variables.txt."""

    name: str
    harmless: tuple[str, ...]
    effect: str


@cache
def table() -> dict[str, Variable]:
    """vLLM's variables that octavo does not read, by name."""
    found = {}
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, harmless, effect = (cell.strip() for cell in line.split("|"))
            found[name] = Variable(name, tuple(harmless.split()), effect)
    return found


def known() -> set[str]:
    """Every name that begins with OCTAVO_ or VLLM_ and means something."""
    both = {f"{prefix}_{name}" for name in environment.VARIABLES for prefix in ("OCTAVO", "VLLM")}
    return both | set(environment.OURS) | {name for name in table() if name.startswith("VLLM_")}


def check(strict: bool = False) -> list[str]:
    """What the log says of the environment. strict: an unknown name is an error, not a warning.

    Raises ConfigError for a value that cannot be, and for what awaits its feature, all of it at once.
    """
    for read in environment.VARIABLES.values():
        read()
    facts: dict[str, list[str]] = {}
    fallbacks, refused, unknown = [], [], []
    for name, value in sorted(environment.of_ours().items()):
        bare = name.partition("_")[2]
        if bare in environment.VARIABLES:
            if environment.spelled(bare) == name and name.startswith("VLLM_"):
                fallbacks.append(name)
        elif name in environment.OURS or _is_of_kubernetes(name, value):
            continue
        elif (variable := table().get(name)) is None:
            unknown.append(f"{name}: {_unknown(name)}")
        elif variable.effect.startswith("gone: "):
            unknown.append(f"{name}: vLLM has it no more; {variable.effect.removeprefix('gone: ')}")
        elif variable.effect.startswith("note: "):
            facts.setdefault(variable.effect.removeprefix("note: "), []).append(name)
        elif not asks_for_nothing(variable, value):
            refused.append(f"{name}={value}: {variable.effect.removeprefix('never: ')}")
    if refused or (strict and unknown):
        raise ConfigError("\n".join([*refused, *(unknown if strict else [])]), f"unset {'it' if len(refused) < 2 else 'them'}")
    for complaint in unknown:
        logger.warning("environment: %s", complaint)
    said = [f"environment: {', '.join(names)}: {fact}" for fact, names in facts.items()]
    return [f"environment: {name} is read, as OCTAVO_{name.removeprefix('VLLM_')} would be" for name in fallbacks] + said


def asks_for_nothing(variable: Variable, value: str) -> bool:
    """Whether the value is one that vLLM takes when the variable is not set, or that switches off what octavo does not have."""
    word = value.strip().lower()
    for each in variable.harmless:
        if word == each.lower() or (each == "0" and word in _OFF) or (each == "1" and word in _ON):
            return True
        try:
            if float(word) == float(each):
                return True
        except ValueError:
            continue
    return False


def _is_of_kubernetes(name: str, value: str) -> bool:
    return _OF_KUBERNETES.fullmatch(name) is not None and (name not in table() or "://" in value)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, known(), n=1, cutoff=0.8)
    who = "neither vLLM nor octavo has" if name.startswith("VLLM_") else "octavo does not have"
    if name.startswith("OCTAVO_") and f"VLLM_{name.partition('_')[2]}" in table():
        return f"octavo does not read it: {table()['VLLM_' + name.partition('_')[2]].effect.split(': ')[-1]}"
    return f"{who} such a variable" + (f"; did you mean {near[0]}?" if near else "")
