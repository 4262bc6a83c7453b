"""Kernels made before they are needed: those of one model, or those that any model may need. No weights are read."""

import itertools
from dataclasses import asdict, dataclass

import torch

from octavo.attention import interface
from octavo.config.config import Config
from octavo.loading.build import build_kernels
from octavo.ops import kernels, tape
from octavo.ops.pages import plain_format
from octavo.sampling.pipeline import Pipeline

# heads of the models that people run: dimensions of a head, query heads to a key
HEAD_DIMS = (64, 80, 96, 128, 256)
GROUPS = (1, 2, 3, 4, 5, 6, 7, 8)


@dataclass(frozen=True, slots=True)
class Kept:
    """folder: where kernels are. compiled: those that were missing (in a dry run: that are); present: those that were there."""

    folder: str
    compiled: list[str]
    present: list[str]
    compile_s: float


def prepare(config: Config | None, is_dry: bool = False, device: str = "cpu") -> dict[str, object]:
    """Make the kernels of a model, or of any; a Kept as a dictionary."""
    torch.set_grad_enabled(False)
    if is_dry:
        with kernels.planning(device) as tally:
            _make(config, device)
    else:
        _make(config, device)
        tally = kernels.tally(device)
    return asdict(Kept(str(kernels.folder(device)), sorted(tally.compiled), sorted(tally.loaded), tally.compile_s))


def _make(config: Config | None, device: str) -> None:
    if config is None or config.device.tape_rows:
        tape.prepare(device)
    if config is not None:
        build_kernels(config, device)
        scheduler, model = config.scheduler, config.model
        Pipeline(
            num_rows=scheduler.max_num_seqs,
            vocab_size=model.vocab_size,
            logprobs_mode=model.logprobs_mode,
            mode=config.device.op_implementations,
            device=device,
        )
        return
    kernels.make_all(device)
    for dtype, head_dim, group in itertools.product((torch.bfloat16, torch.float32), HEAD_DIMS, GROUPS):
        facts = interface.Facts(
            num_heads=group,
            num_kv_heads=1,
            head_dim=head_dim,
            dtype=dtype,
            cache_format=plain_format(dtype),
            block_size=32,
            scale=1.0,
            rotary_dim=head_dim,
        )
        interface.choose_backend(facts, device=device)
