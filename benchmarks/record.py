"""The record: every figure that was measured, with when, where and beside what, in one JSON file that a later run goes on with."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.children import ROOT
from benchmarks.measures import Lane

Row = dict[str, Any]
_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


class Record:
    """rows: one a figure. A turn is one pass over lanes: what stands in the same turn was measured one behind the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: list[dict[str, Any]] = []
        self.models: dict[str, dict[str, Any]] = {}  # name -> formats.Sizes
        self.rows: list[Row] = []
        self.failures: list[Row] = []
        if path.exists():
            found = json.loads(path.read_text())
            self.runs, self.rows, self.failures = found["runs"], found["rows"], found["failures"]
            self.models = found["models"]

    def begin(self, words: Sequence[str], threads: int) -> None:
        """A run of this command."""
        self.runs.append(
            {"command": list(words), "date": time.strftime("%Y-%m-%d"), "threads": threads} | commit() | {"machine": machine()}
        )
        self.runs[-1]["versions"] = {}

    def note_facts(self, lane: Lane, facts: dict[str, Any]) -> None:
        self.runs[-1]["versions"][str(lane)] = facts

    def facts(self, lane: Lane) -> dict[str, Any]:
        """The newest of that lane."""
        return next((run["versions"][str(lane)] for run in reversed(self.runs) if str(lane) in run["versions"]), {})

    def new_turn(self) -> int:
        return 1 + max((row["turn"] for row in self.rows), default=0)

    def add(self, model: str, measure: str, turn: int, lane: Lane, ask: str, value: dict[str, Any]) -> None:
        place = {"model": model, "measure": measure, "turn": turn, "engine": lane.engine, "format": lane.format, "ask": ask}
        when = {"run": len(self.runs) - 1, "at": time.strftime("%H:%M:%S"), "load": round(os.getloadavg()[0], 2)}
        self.rows.append(place | when | {"value": value})

    def fail(self, model: str, measure: str, lane: Lane, why: str) -> None:
        self.failures.append({"model": model, "measure": measure, "engine": lane.engine, "format": lane.format, "why": why})
        self.save()

    def num_turns(self, model: str, measure: str, lanes: Sequence[Lane], asks: Sequence[str]) -> int:
        """How many turns have every ask of every lane."""
        turns: dict[int, set[tuple[str, str, str]]] = {}
        for row in self.rows:
            if row["model"] == model and row["measure"] == measure:
                turns.setdefault(row["turn"], set()).add((row["engine"], row["format"], row["ask"]))
        wanted = {(lane.engine, lane.format, ask) for lane in lanes for ask in asks}
        return sum(wanted <= done for done in turns.values())

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text(
            json.dumps({"runs": self.runs, "models": self.models, "failures": self.failures, "rows": self.rows}, indent=0) + "\n"
        )
        partial.replace(self.path)


def machine() -> dict[str, Any]:
    """What the figures hold for."""
    text = _text("/proc/cpuinfo")
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    names = {name.strip(): value.strip() for name, value in lines.items()}
    flags = names.get("flags", "").split()
    huge = _text("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "processor": names.get("model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "flags": [flag for flag in _FLAGS if flag in flags],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "huge_pages": huge[huge.find("[") + 1 : huge.find("]")] if "[" in huge else "",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def commit() -> dict[str, Any]:
    """Of this checkout; without git nothing."""
    try:
        head = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(["git", "status", "--porcelain", "-uno"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "is_changed": False}
    return {"commit": head, "is_changed": bool(changed.strip())}


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
