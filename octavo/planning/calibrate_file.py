"""Calibration file: what was measured on this machine, under octavo's cache, with what it was measured by. Another machine's, another
version's and a damaged one are not used.
"""

import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path

import msgspec

from octavo import __version__, environment
from octavo.config import machine
from octavo.planning.calibrate_terms import Terms


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What speed depends on."""

    name: str
    processor: str
    cores: int
    memory_bytes: int

    @property
    def id(self) -> str:
        """The same for as long as nothing of it changes; memory to the GiB."""
        text = f"{self.name}\n{self.processor}\n{self.cores}\n{self.memory_bytes >> 30}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """terms: by the number format of the weights that were measured: a dtype, or a scheme of --quantization."""

    machine: Machine
    versions: dict[str, str]
    measured_at: str
    terms: dict[str, Terms]
    worst: dict[str, float]  # by number format: the largest error of the measured steps, as a share

    @property
    def source(self) -> str:
        """One line about it."""
        return f"measured on this machine by octavo {self.versions['octavo']} on {self.measured_at[:10]}"


def this_machine() -> Machine:
    """Of this process: the cores and the memory that it may use."""
    facts = machine.look()
    return Machine(name=platform.node(), processor=_processor(), cores=facts.cores, memory_bytes=facts.total_bytes)


def versions() -> dict[str, str]:
    """Of octavo and of what computes in it."""
    return {"octavo": __version__, "python": platform.python_version()} | {name: metadata.version(name) for name in ("torch", "numba")}


def path(found: Machine) -> Path:
    """Where a machine's calibration is kept."""
    return environment.cache_root() / "calibration" / f"{found.id}.json"


def save(calibration: Calibration) -> Path:
    """Keeps what was measured in other number formats by the same versions. Returns the file."""
    file = path(calibration.machine)
    before = load(calibration.machine)
    if before is not None:
        calibration = msgspec.structs.replace(calibration, terms=before.terms | calibration.terms, worst=before.worst | calibration.worst)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(calibration), indent=2))
    unfinished.replace(file)
    return file


def load(found: Machine | None = None) -> Calibration | None:
    """This machine's, if there is one that these versions made."""
    found = found or this_machine()
    try:
        calibration = msgspec.json.decode(path(found).read_bytes(), type=Calibration)
    except (OSError, msgspec.DecodeError):
        return None
    return calibration if calibration.machine.id == found.id and calibration.versions == versions() else None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
