"""A model driven by hand: pages, block tables and batches without a worker, so that a test decides what a step holds."""

import random
from pathlib import Path
from typing import Any

import torch

from octavo.attention.batch import Batch
from octavo.checkpoint import hf_config as hf_config_files
from octavo.config.config import Config
from octavo.device.arena import Arena
from octavo.device.cpu import create
from octavo.layers.decoder import CausalLM
from octavo.loading.build import build, build_meta
from tests.configs import make_config

NUM_BLOCKS = 96


def config_for(
    path: Path,
    *,
    hf_config: dict[str, Any] | None = None,
    dtype: str = "float32",
    mode: str = "fast",
    block_size: int = 16,
    load_format: str = "safetensors",
    max_model_len: int = 0,
    cache_dtype: str = "auto",
    skipped_layers: tuple[str, ...] = (),
) -> Config:
    """What resolve() would make of a folder, with everything but the named things at its plainest."""
    hf_config = hf_config or hf_config_files.read(path)[0]
    return make_config(
        name=str(path),
        model_type=hf_config["model_type"],
        hf_config=hf_config,
        dtype=dtype,
        cache_dtype=cache_dtype,
        skipped_layers=list(skipped_layers),
        max_model_len=max_model_len,
        vocab_size=hf_config["vocab_size"],
        bos_token_id=1,
        load_format=load_format,
        block_size=block_size,
        memory_utilization=0.9,
        num_blocks_override=NUM_BLOCKS,
        prefix_caching=False,
        max_num_seqs=4,
        max_num_batched_tokens=256,
        op_implementations=mode,
    )


class Sequence:
    """Tokens computed so far, and the blocks that hold their state in each group."""

    def __init__(self, num_groups: int) -> None:
        self.length = 0
        self.blocks: list[list[int]] = [[] for _ in range(num_groups)]


class Driver:
    """A built model with pages for every layer. Layers with one spec are one group; blocks are handed out in a shuffled order."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.built = build(config, create(config.device))
        self.model = self.built.model
        self.block_size = config.cache.block_size
        self.specs = bind(self.model, config, meta=False)
        self._free = list(range(1, NUM_BLOCKS))
        random.Random(0).shuffle(self._free)
        self.arena = Arena(torch.empty(32 * 2**20, dtype=torch.uint8))

    def sequence(self) -> Sequence:
        return Sequence(len(self.specs))

    def release(self, sequence: Sequence) -> None:
        """The sequence has ended; its blocks go back."""
        self._free += [block for blocks in sequence.blocks for block in blocks if block]
        sequence.blocks = []

    def step(self, rows: list[tuple[Sequence, list[int]]]) -> list[torch.Tensor]:
        """Compute the tokens given for each sequence in one batch; the logits of every token, a tensor [tokens, vocab] for each row."""
        batch = self._batch(rows)
        self.arena.reset()
        with self.arena.scope():
            hidden = self.model(batch, self.arena)
            logits = self.model.logits(hidden, torch.arange(batch.num_tokens, dtype=torch.int32), self.arena).clone()
        return list(logits.split([len(tokens) for _, tokens in rows]))

    def _batch(self, rows: list[tuple[Sequence, list[int]]]) -> Batch:
        positions: list[int] = []
        slots: list[list[int]] = [[] for _ in self.specs]
        for sequence, tokens in rows:
            new = range(sequence.length, sequence.length + len(tokens))
            sequence.length += len(tokens)
            positions += new
            for group, blocks in enumerate(sequence.blocks):
                while len(blocks) * self.block_size < sequence.length:
                    blocks.append(self._free.pop())
                slots[group] += [blocks[p // self.block_size] * self.block_size + p % self.block_size for p in new]
                self._forget(blocks, new.start, self.specs[group].window)
        starts = torch.tensor([0, *(len(tokens) for _, tokens in rows)]).cumsum(0).to(torch.int32)
        return Batch(
            num_tokens=len(positions),
            num_rows=len(rows),
            tokens=torch.tensor([token for _, tokens in rows for token in tokens], dtype=torch.int32),
            positions=torch.tensor(positions, dtype=torch.int32),
            row_starts=starts,
            lengths=torch.tensor([sequence.length for sequence, _ in rows], dtype=torch.int32),
            tables=[self._table([sequence.blocks[group] for sequence, _ in rows]) for group in range(len(self.specs))],
            slots=[torch.tensor(of_group, dtype=torch.int64) for of_group in slots],
            max_count=max(len(tokens) for _, tokens in rows),
            max_length=max(sequence.length for sequence, _ in rows),
            block_size=self.block_size,
        )

    def _forget(self, blocks: list[int], first: int, window: int) -> None:
        """Blocks that no token from position `first` on can see go back, as the scheduler does it; 0 stands in their place."""
        if window:
            for index in range(max(0, first - window + 1) // self.block_size):
                if blocks[index]:
                    self._free.append(blocks[index])
                    blocks[index] = 0

    @staticmethod
    def _table(rows: list[list[int]]) -> torch.Tensor:
        width = max(len(blocks) for blocks in rows)
        return torch.tensor([blocks + [0] * (width - len(blocks)) for blocks in rows], dtype=torch.int32)


def bind(model: CausalLM, config: Config, meta: bool) -> list[Any]:
    """Give every layer pages and a group; the specs of the groups."""
    specs: list[Any] = []
    for attention in model.attention_layers().values():
        spec = attention.spec()
        if spec not in specs:
            specs.append(spec)
        page_bytes = spec.bytes_per_token * config.cache.block_size
        # bytes of 0xFF are NaN in every float format: what was never stored must not be seen
        pages = torch.full((NUM_BLOCKS, page_bytes), 255, dtype=torch.uint8, device="meta" if meta else "cpu")
        attention.bind(pages, specs.index(spec), config.cache.block_size)
    return specs


def measured_bytes(config: Config, counts: list[int], lengths: list[int]) -> int:
    """The arena's high water of one step, computed on meta tensors: rows of `counts` tokens whose contexts are then `lengths`."""
    built = build_meta(config)
    specs = bind(built.model, config, meta=True)
    block_size = config.cache.block_size
    tokens, rows, width = sum(counts), len(counts), -(-max(lengths) // block_size)

    def ints(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    batch = Batch(
        num_tokens=tokens,
        num_rows=rows,
        tokens=ints(tokens),
        positions=ints(tokens),
        row_starts=ints(rows + 1),
        lengths=ints(rows),
        tables=[ints(rows, width) for _ in specs],
        slots=[ints(tokens, dtype=torch.int64) for _ in specs],
        max_count=max(counts),
        max_length=max(lengths),
        block_size=block_size,
    )
    arena = Arena()
    with arena.scope():
        hidden = built.model(batch, arena)
        built.model.logits(hidden, ints(tokens), arena)
    return arena.high_water
