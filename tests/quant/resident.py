"""How much a process grows by a model's weights: `python -m tests.quant.resident MODEL [SCHEME]` builds it and prints that as JSON.

A process of its own, whose kernels are made and whose libraries are loaded before the first figure is taken.
"""

import gc
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOKENS = 512  # few, so that tables of positions are small


@dataclass(frozen=True, slots=True)
class Resident:
    """grown_bytes: of the process's anonymous memory; planned_bytes: what octavo says that the weights take."""

    grown_bytes: int
    planned_bytes: int


def measure(model: Path, scheme: str | None = None) -> Resident:
    words = [sys.executable, "-m", "tests.quant.resident", str(model), *([] if scheme is None else [scheme])]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return Resident(**json.loads(done.stdout.splitlines()[-1]))


def main(model: str, scheme: str | None = None) -> None:
    import torch

    from octavo import plugins
    from octavo.config.options import Options
    from octavo.config.resolve import resolve
    from octavo.loading.build import build, build_kernels

    torch.set_grad_enabled(False)
    config = resolve(Options(model=model, quantization=scheme, max_model_len=TOKENS, skip_tokenizer_init=True))
    device: Any = plugins.load("device", config.device.device).create(config.device)
    build_kernels(config, device.kind)
    torch.ones(4096, 256).matmul(torch.ones(256, 256))  # the threads of the pool, with what each allocates for itself
    gc.collect()
    before = device.used_bytes()
    built = build(config, device)
    gc.collect()
    print(json.dumps({"grown_bytes": device.used_bytes() - before, "planned_bytes": built.weights_bytes}))


if __name__ == "__main__":
    main(*sys.argv[1:])
