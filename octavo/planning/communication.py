"""Communication: what the devices of a layout send one another in a step, collective by collective."""

import msgspec

from octavo.planning.hardware import Hardware, Link
from octavo.planning.topology import Topology
from octavo.planning.work import Work


class Collective(msgspec.Struct, frozen=True):
    """One kind of message of a step. bytes_sent: by one device, in one of `count` messages."""

    name: str
    count: int
    bytes_sent: float
    link: Link

    @property
    def total_bytes(self) -> float:
        return self.count * self.bytes_sent

    @property
    def seconds(self) -> float:
        return self.count * (self.link.latency_s + self.bytes_sent / self.link.bytes_per_s)


def of_a_step(work: Work, topology: Topology, hardware: Hardware, tokens: int, itemsize: int = 2) -> list[Collective]:
    """For a step of so many tokens of one replica; activations take `itemsize` bytes a number.

    Tensor parallelism adds up hidden states behind attention and behind the feed-forward of every layer (a ring: 2 (n - 1) / n of the
    message); expert parallelism sends each token to the devices of its experts and back in place of the latter; a pipeline hands hidden
    states on; context parallelism gathers queries and adds up outputs over the devices that share a request's cache.
    """
    message = float(tokens * work.hidden * itemsize)
    found = []
    ring = 2.0 * (topology.tensor - 1) / topology.tensor
    if topology.tensor > 1:
        both = 1 if work.num_experts and topology.is_expert_parallel else 2
        found.append(Collective("all-reduce of tensor parallelism", both * work.layers, ring * message, _link(hardware, topology.tensor)))
    if topology.expert > 1 and work.num_experts:
        away = (topology.expert - 1) / topology.expert
        sent = message / topology.tensor * work.num_chosen * away
        found.append(Collective("all-to-all of expert parallelism", 2 * work.layers, sent, _link(hardware, topology.expert)))
    if topology.pipeline > 1:
        found.append(Collective("hand-over between pipeline stages", 1, message, _link(hardware, topology.tensor * topology.pipeline)))
    if topology.decode_context > 1:
        share = (topology.decode_context - 1) / topology.decode_context
        width = sum(width for width, _, _ in work.heads) / max(1, work.layers) * topology.decode_context
        sent = 2.0 * tokens * width * itemsize * share
        found.append(Collective("gathering of context parallelism", work.layers, sent, _link(hardware, topology.decode_context)))
    return found


def _link(hardware: Hardware, devices: int) -> Link:
    """The slowest link among so many devices."""
    card = hardware.card
    inside, between = card.link, card.network
    if devices > card.per_node and between is not None:
        return between
    return inside or between or Link("memory", card.bytes_per_s, 1e-6)
