"""Calibrate: the model reads a text, and what goes into each of its linear layers is noted.

The inputs of experts are not seen: they run inside one kernel.
"""

from pathlib import Path
from typing import Any

import msgspec
import torch

from octavo import plugins
from octavo.attention.batch import Batch
from octavo.config.config import Config
from octavo.device.arena import Arena
from octavo.device.device import Device
from octavo.errors import ConfigError
from octavo.kvcache.plan import plan_cache
from octavo.kvcache.specs import CachePlan, LayerState
from octavo.layers.decoder import CausalLM
from octavo.layers.linear import Product
from octavo.loading.build import build, build_meta
from octavo.quant.calibration import Felt
from octavo.text.tokenizer import Tokenizer
from octavo.worker.cache import Cache

WINDOW = 512  # tokens read at once, each window for itself
MOST_WINDOWS = 16


def calibrate(config: Config, file: str) -> dict[str, Felt]:
    """What went into each weight, by its path, while the first tokens of the text in `file` were read.

    Raises ConfigError for a file that cannot be read or is too short.
    """
    windows = _windows(config, file)
    longest = max(map(len, windows))
    # alone, in blocks of its own
    config = msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, max_model_len=max(longest, 2)))
    torch.set_grad_enabled(False)
    device: Device = plugins.load("device", config.device.device).create(config.device)
    arena = Arena(device.allocate(_arena_bytes(config, longest)))
    model = build(config, device).model
    plan = _plan(model, config, longest)
    Cache(plan, device, model)
    notes = {product: _Notes(product) for product in model.modules() if isinstance(product, Product)}
    for window in windows:
        arena.reset()
        model(_batch(window, plan), arena)
    return {piece.path: notes[product].felt() for product in notes for piece in product.weight.pieces if notes[product].count}


class _Notes:
    """Stands before the implementation of a product and notes what passes."""

    def __init__(self, product: Product) -> None:
        self._implementation: Any = product._implementation
        self.squares = torch.zeros(product.weight.columns, dtype=torch.float64)
        self.largest = 0.0
        self.count = 0
        product._implementation = self

    def __call__(self, out: torch.Tensor, x: torch.Tensor, *operands: Any) -> None:
        inputs = x.float()
        self.squares += inputs.square().sum(0, dtype=torch.float64)
        self.largest = max(self.largest, float(inputs.abs().amax()))
        self.count += len(x)
        self._implementation(out, x, *operands)

    def felt(self) -> Felt:
        return Felt((self.squares / self.count).float(), self.largest)


def _windows(config: Config, file: str) -> list[list[int]]:
    try:
        text = Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"--calibration {file} cannot be read: {error}") from None
    size = min(WINDOW, config.model.max_model_len or WINDOW)
    # tokens of a text are shorter than 16 characters on the whole
    ids = Tokenizer.load(config.model.tokenizer_path).encode(text[: 16 * size * MOST_WINDOWS])
    windows = [ids[start : start + size] for start in range(0, min(len(ids), size * MOST_WINDOWS), size)]
    if not windows or len(windows[0]) < min(size, 64):
        raise ConfigError(f"--calibration {file} is too short: {len(ids)} tokens", "a few thousand words tell enough")
    return [window for window in windows if len(window) > 1]


def _plan(model: CausalLM, config: Config, length: int) -> CachePlan:
    """A cache that one window fits in, in every group."""
    states = [LayerState(name, layer.spec()) for name, layer in model.attention_layers().items()]
    each = -(-length // config.cache.block_size)
    return plan_cache(states, config.cache.block_size, 0, num_blocks_override=1 + each * len(states))


def _arena_bytes(config: Config, length: int) -> int:
    """Of the longest window, by running it on meta tensors."""
    model = build_meta(config, config.device.device).model
    plan = _plan(model, config, length)
    layers = model.attention_layers()
    for number, group in enumerate(plan.groups):
        pages = torch.empty(plan.num_blocks, group.page_bytes, dtype=torch.uint8, device="meta")
        for name in group.layers:
            layers[name].bind(pages, number, plan.block_size)
    arena = Arena()
    model(_batch([0] * length, plan, "meta"), arena)
    return arena.high_water


def _batch(tokens: list[int], plan: CachePlan, device: str = "cpu") -> Batch:
    """One row from its first token on; each group has blocks of its own."""
    count, size = len(tokens), plan.block_size
    each = -(-count // size)
    starts = [1 + number * each for number in range(len(plan.groups))]

    def ints(values: Any, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.as_tensor(values, dtype=dtype).to(device)

    return Batch(
        num_tokens=count,
        num_rows=1,
        tokens=ints(tokens),
        positions=ints(range(count)),
        row_starts=ints([0, count]),
        lengths=ints([count]),
        tables=[ints([list(range(start, start + each))]) for start in starts],
        slots=[ints([start * size + position for position in range(count)], torch.int64) for start in starts],
        max_count=count,
        max_length=count,
        block_size=size,
    )
