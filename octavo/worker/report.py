"""Report: what the device plane is made of on this machine, as JSON on standard output. `octavo collect-env` runs it by itself."""

import json
import sys
from typing import Any

import torch

from octavo.config import machine
from octavo.config.config import DeviceConfig
from octavo.device import cpu
from octavo.ops import kernels
from octavo.ops.op import choose
from octavo.ops.order import ORDER


def report() -> dict[str, Any]:
    """Names and values, for people."""
    found = machine.look()
    device = cpu.create(
        DeviceConfig(device=found.device, threads=found.cores, cores=None, attention_backend=None, op_implementations="fast")
    )
    folder = kernels.folder(found.device)
    files = sorted(folder.glob("*.kernel")) if folder.is_dir() else []
    told: dict[str, Any] = {
        "device": device.description,
        "level": kernels.level(found.device),
        "torch": f"{torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}",
        "threads of torch": torch.__config__.parallel_info().partition("ATen parallel backend:")[2].strip().partition("\n")[0] or None,
        "CUDA": torch.version.cuda,
        "kernels kept": f"{len(files)} in {folder}",
    }
    return told | {f"op {op}": choice for op, choice in implementations(found.device).items()}


def implementations(device: str) -> dict[str, str]:
    """For each op all that its cases get here, in each dtype, in the order of the cases. No kernel is made."""
    found: dict[str, str] = {}
    with kernels.planning(device):
        for op in ORDER[device]:
            got: dict[str, dict[str, None]] = {}
            for facts in kernels.facts_of(op):
                dtype = str(getattr(facts, "dtype", "any dtype")).removeprefix("torch.")
                got.setdefault(dtype, {})[choose(op, facts, device).name] = None
            found[op] = "; ".join(f"{dtype}: {', '.join(names)}" for dtype, names in got.items())
    return found


def main() -> None:
    json.dump(report(), sys.stdout)


if __name__ == "__main__":
    main()
