"""Plan: a model on hardware, laid out by a topology: what it takes, whether it fits, and for how many users."""

import msgspec

from octavo.config.config import Config
from octavo.config.options import Options
from octavo.config.resolve import Usage, resolve
from octavo.errors import ConfigError
from octavo.planning.hardware import Hardware
from octavo.planning.memory import Room, make_room
from octavo.planning.ranks import Rank, build_ranks, describe
from octavo.planning.sources import find
from octavo.planning.topology import Topology


class Plan(msgspec.Struct, kw_only=True):
    """All of it. Lists have one entry a pipeline stage; each is of the device of that stage that holds most."""

    model: str
    config: Config
    hardware: Hardware
    topology: Topology
    parameters: int
    ranks: list[Rank]
    rooms: list[Room]
    kv_heads: int  # of the whole model
    notes: list[str]  # what is worth knowing
    reasons: list[str]  # why it does not fit; none if it does

    @property
    def fits(self) -> bool:
        return not self.reasons

    @property
    def tightest(self) -> Room:
        """The stage that decides how much the cache holds."""
        return min(self.rooms, key=lambda room: (room.cache_tokens, -room.needed_bytes))

    @property
    def replicas(self) -> int:
        return self.topology.data

    @property
    def cache_tokens(self) -> int:
        """Of all replicas together."""
        return self.tightest.cache_tokens * self.replicas

    @property
    def max_concurrency(self) -> float:
        return self.tightest.max_concurrency * self.replicas

    @property
    def bytes_per_token(self) -> int:
        """Of cache, of the whole model on one replica, each kv head counted once."""
        return sum(room.bytes_per_token * self.kv_heads // rank.kv_heads for room, rank in zip(self.rooms, self.ranks, strict=True))

    @property
    def bytes_per_sequence(self) -> int:
        return sum(room.bytes_per_sequence * self.kv_heads // rank.kv_heads for room, rank in zip(self.rooms, self.ranks, strict=True))


def make(options: Options, hardware: Hardware, topology: Topology, usage: Usage = "server", *, notes: list[str] | None = None) -> Plan:
    """Raises ConfigError, ModelNotFoundError or UnsupportedModelError for what cannot be planned at all; what only lacks memory is a plan
    that does not fit.
    """
    config = configure(options, hardware, usage)
    whole = describe(config)
    said = topology.check(whole.layers, whole.kv_heads)
    ranks = build_ranks(config, topology)
    rooms = [make_room(config, rank, hardware.card, topology) for rank in ranks]
    reasons = []
    if topology.ranks > hardware.count:
        reasons.append(f"the layout needs {topology.ranks} devices, and there are {hardware.count}")
    for number, room in enumerate(rooms):
        if room.why_not is not None:
            where = f"stage {number}: " if len(rooms) > 1 else ""
            reasons.append(f"{where}{room.why_not}")
    if topology.ranks < hardware.count:
        said.append(f"{hardware.count - topology.ranks} of {hardware.count} devices are not used by this layout")
    return Plan(
        model=options.model,
        config=config,
        hardware=hardware,
        topology=topology,
        parameters=whole.parameters,
        ranks=ranks,
        rooms=rooms,
        kv_heads=whole.kv_heads,
        notes=[*(notes or []), *said],
        reasons=reasons,
    )


def configure(options: Options, hardware: Hardware, usage: Usage = "server") -> Config:
    """What octavo would run with on that hardware. Raises as make() does."""
    return _on(resolve(options, usage, hardware.facts(), find(options)), hardware)


def _on(config: Config, hardware: Hardware) -> Config:
    """The configuration with what a card that is not here would run: weights as they are stored, attention in pages."""
    if hardware.card.kind == "cpu":
        return config
    if config.model.dtype == "float32":
        raise ConfigError("float32 on a GPU is not planned", "use --dtype bfloat16 or float16")
    device = msgspec.structs.replace(config.device, device="cpu", op_implementations="reference", attention_backend="CPU_ATTN")
    # float16 takes what bfloat16 takes, and the back end that is measured has the latter
    cache = msgspec.structs.replace(config.cache, dtype="bfloat16") if config.cache.dtype == "float16" else config.cache
    return msgspec.structs.replace(config, device=device, cache=cache, model=msgspec.structs.replace(config.model, dtype="bfloat16"))
