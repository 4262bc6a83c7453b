"""octavo collect-env: this machine and installation, for a report of a fault. Secrets are masked."""

import contextlib
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from octavo import __version__, environment
from octavo.checkpoint import catalog
from octavo.cli.parser import Parser
from octavo.config import machine

PACKAGES = (
    "torch", "numpy", "numba", "llvmlite", "tokenizers", "jinja2", "safetensors", "huggingface-hub", "llguidance", "fastapi", "starlette",
    "uvicorn", "uvloop", "httptools", "pydantic", "msgspec", "pyzmq", "prometheus-client", "rich", "psutil", "pyyaml", "pillow", "cbor2",
    "xxhash", "xgrammar", "fastokens", "opentelemetry-sdk", "ray", "modelscope", "mistral-common", "transformers", "vllm",
)  # fmt: skip
PROBE_TIMEOUT_S = 120


def parser() -> Parser:
    """The command line of `octavo collect-env`."""
    result = Parser(prog="octavo collect-env", description="Describe this machine and installation, without secrets.")
    result.add_argument("--json", action="store_true", help="as JSON")
    return result


def run(argv: list[str]) -> int:
    as_json = parser().parse_args(argv).json
    facts = collect()
    print(json.dumps(facts, indent=1) if as_json else told(facts))
    return 0


def collect() -> dict[str, dict[str, Any]]:
    """Sections of names and values."""
    return {
        "octavo": {"version": __version__, "installed at": str(Path(__file__).parents[1]), "python": sys.version.split()[0]}
        | {"executable": sys.executable, "platform": platform.platform(), "C library": " ".join(platform.libc_ver()) or None},
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
        "processor": _processor(),
        "memory": _memory(),
        "limits": _limits(),
        "kernels and implementations": _device_plane(),
        "folders": {"cache": str(environment.cache_root()), "hub cache": str(environment.hub_cache())}
        | {"runtime": str(environment.runtime_root()), "catalog models": ", ".join(_catalog()) or "none"},
        "environment": environment.relevant(),
    }


def told(facts: dict[str, dict[str, Any]]) -> str:
    """For people."""
    lines = []
    for title, section in facts.items():
        lines += [title, *(f"  {name:<26} {_shown(value)}" for name, value in section.items() if value is not None)]
        if not section:
            lines.append("  none")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> dict[str, Any]:
    found = machine.look()
    fields = _fields(Path("/proc/cpuinfo"), ":")
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    telling = [flag for flag in sorted(flags) if flag.startswith(("avx", "amx", "fma", "f16c", "sse4", "sve", "bf16", "asimd", "i8mm"))]
    return {
        "name": fields.get("model name") or platform.processor() or platform.machine(),
        "cores in the machine": os.cpu_count(),
        "cores for this process": found.cores,
        "vector features": " ".join(telling) or None,
        "load": " ".join(f"{value:.2f}" for value in os.getloadavg()) if hasattr(os, "getloadavg") else None,
    }


def _memory() -> dict[str, Any]:
    fields = _fields(Path("/proc/meminfo"), ":")
    return {
        "total bytes": machine.total_bytes(),
        "available bytes": machine.available_bytes(),
        "swap": fields.get("SwapTotal"),
        "transparent huge pages": _text(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "huge page defrag": _text(Path("/sys/kernel/mm/transparent_hugepage/defrag")),
        "huge pages reserved": fields.get("HugePages_Total"),
        "overcommit": _text(Path("/proc/sys/vm/overcommit_memory")),
    }


def _limits() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("cpu.max", "memory.max", "memory.high", "pids.max", "cpuset.cpus.effective"):
        found[f"cgroup {name}"] = _text(Path("/sys/fs/cgroup") / name)
    with contextlib.suppress(ImportError):  # not on Windows
        import resource

        for title, number in (("open files", resource.RLIMIT_NOFILE), ("locked memory", resource.RLIMIT_MEMLOCK)):
            soft, hard = (("unlimited" if value == resource.RLIM_INFINITY else value) for value in resource.getrlimit(number))
            found[title] = f"{soft} (hard {hard})"
    return found


def _device_plane() -> dict[str, Any]:
    """What the half of octavo that computes says of itself, in a process of its own: it may be what is broken."""
    command = [sys.executable, "-P", "-m", "octavo.worker.report"]
    paths = [str(Path(__file__).parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in dict.fromkeys(paths) if path)}
    try:
        done = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S)
        if done.returncode == 0:
            return dict(json.loads(done.stdout))
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return {"broken": f"exit status {done.returncode}: {last}"}
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return {"broken": str(error)}


def _catalog() -> list[str]:
    return [model.name for model in catalog.CATALOG.values() if catalog.cached(model) is not None]


def _fields(path: Path, separator: str) -> dict[str, str]:
    """The first value of each name in a file of lines `name: value`."""
    found: dict[str, str] = {}
    for line in (_text(path) or "").splitlines():
        name, _, value = line.partition(separator)
        found.setdefault(name.strip(), value.strip())
    return found


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
