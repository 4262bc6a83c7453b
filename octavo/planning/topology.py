"""Topology: how a model is spread over devices, what that asks of the model and of the machines, and what each device then holds."""

import msgspec

from octavo.errors import ConfigError
from octavo.parallel.cut import Group


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes as typed. Expert parallelism is a switch, whose size is computed."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    prefill_context: int = 1
    decode_context: int = 1
    is_expert_parallel: bool = False
    api_servers: int = 1

    @property
    def ranks(self) -> int:
        """Devices in all."""
        return self.tensor * self.pipeline * self.data * self.prefill_context

    @property
    def expert(self) -> int:
        """Devices among which the experts of a layer are shared out; 1: every tensor-parallel rank has a slice of each."""
        return self.tensor * self.prefill_context * self.data if self.is_expert_parallel else 1

    @property
    def processes(self) -> int:
        """API servers, an engine core for each data-parallel replica, a worker for each device, a coordinator between replicas."""
        return self.api_servers + self.data + self.ranks + (1 if self.data > 1 else 0)

    @property
    def least_cores(self) -> int:
        """Physical cores: one for every process, as each is busy while it works."""
        return self.processes

    def group(self, rank: int = 0) -> Group:
        """What the layers are cut by, for one of the ranks that hold a replica together."""
        return Group(rank=rank, size=self.tensor, expert_rank=rank if self.expert > 1 else 0, expert_size=self.expert)

    def check(self, num_layers: int, kv_heads: int | None) -> list[str]:
        """Raises ConfigError for sizes that cannot be; gives what is worth saying of those that can."""
        said = []
        for name, size in (
            ("tensor-parallel-size", self.tensor),
            ("pipeline-parallel-size", self.pipeline),
            ("data-parallel-size", self.data),
            ("prefill-context-parallel-size", self.prefill_context),
            ("decode-context-parallel-size", self.decode_context),
        ):
            if size < 1:
                raise ConfigError(f"--{name} must be at least 1, not {size}")
        if self.pipeline > num_layers:
            raise ConfigError(f"--pipeline-parallel-size {self.pipeline} is more than the model's {num_layers} layers")
        if self.tensor % self.decode_context:
            raise ConfigError(
                f"--decode-context-parallel-size {self.decode_context} does not divide --tensor-parallel-size {self.tensor}",
                "context parallelism shares out the cache of the tensor-parallel ranks",
            )
        if kv_heads is not None and self.tensor > kv_heads:
            copies = self.tensor // kv_heads
            said.append(f"{kv_heads} kv heads on {self.tensor} ranks: each is held {copies} times, so is its cache")
        if kv_heads is not None and self.decode_context > max(1, self.tensor // kv_heads):
            raise ConfigError(
                f"--decode-context-parallel-size {self.decode_context}: only {max(1, self.tensor // kv_heads)} ranks hold the same kv head",
                "raise --tensor-parallel-size, or lower the other: what is not held twice cannot be shared out",
            )
        return said

    def stages(self, num_layers: int) -> list[range]:
        """The layers of each pipeline stage: as even as can be, the later stages one more, but the last, which has the head."""
        each, more = divmod(num_layers, self.pipeline)
        counts = [each] * self.pipeline
        for place in range(more):
            counts[-2 - place if self.pipeline > 1 else 0] += 1
        starts = [sum(counts[:stage]) for stage in range(self.pipeline)]
        return [range(start, start + count) for start, count in zip(starts, counts, strict=True)]
