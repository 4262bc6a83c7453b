"""Communication: what the devices of a layout send one another in a step, collective by collective."""

import msgspec

from octavo.planning.hardware import Hardware, Link
from octavo.planning.topology import Topology
from octavo.planning.work import Work


class Collective(msgspec.Struct, frozen=True):
    """One kind of message of a step. bytes_sent: by one device, in one of `count` messages. bytes_per_s: of one device, over `link`."""

    name: str
    count: int
    bytes_sent: float
    link: Link
    bytes_per_s: float

    @property
    def total_bytes(self) -> float:
        return self.count * self.bytes_sent

    @property
    def seconds(self) -> float:
        return self.count * (self.link.latency_s + self.bytes_sent / self.bytes_per_s)


def of_a_step(work: Work, topology: Topology, hardware: Hardware, tokens: int, rows: int, itemsize: int = 2) -> list[Collective]:
    """For a step of so many tokens of one replica, of which so many rows sample; activations take `itemsize` bytes a number. Of n devices
    and a message B of tokens x hidden numbers:

    - Tensor parallelism adds up hidden states behind attention and behind the feed-forward of each layer: two all-reduces a layer, as in
      Megatron-LM (Shoeybi et al. 2019). Each device sends 2 (n - 1) / n x B, the least that an all-reduce can do (Patarasu and Yuan 2009).
      The time is latency + bytes / bandwidth with one latency a collective: small messages are exchanged directly, each device to every
      other, and not in 2 (n - 1) hops of a ring.
    - Expert parallelism sends each token to the devices of its experts, and their outputs back (GShard, Lepikhin et al. 2020): two
      all-to-alls a layer in place of the second all-reduce. A device starts with its 1/tensor of a replica's tokens; each goes to
      num_chosen experts, of which (e - 1) / e are elsewhere among e devices, when choices are even, and is sent once for each. Behind the
      second all-to-all every tensor-parallel rank gets its replica's other tokens back: an all-gather of (n - 1) / n x B.
    - A pipeline hands the hidden states of all tokens on, once between two stages, each rank its share of them, which the ranks of the next
      stage then gather.
    - Prefill context parallelism gathers keys and values of the other ranks' tokens in each layer: each rank sends its 1/p of the step's
      tokens to p - 1 others, and what the other collectives send is 1/p. Steps that only decode are not shared out.
    - Decode context parallelism gathers the queries of the d ranks that share a request's cache, then adds up their outputs, each weighted
      by its share of the softmax (Helix parallelism, Bhatia et al. 2025): (d - 1) / d of d ranks' queries and outputs a layer.
    """
    tensor, prefill = topology.tensor, topology.prefill_context
    is_shared_out = prefill > 1 and tokens > rows
    own = -(-tokens // prefill) if is_shared_out else tokens
    message = float(own * work.hidden * itemsize)
    away = (tensor - 1) / tensor
    is_apart = topology.expert > 1 and work.num_experts > 0
    found = []

    def add(name: str, count: int, sent: float, devices: int, spread: int) -> None:
        link = _link(hardware, spread)
        found.append(Collective(name, count, sent, link, link.rate(devices)))

    if tensor > 1:
        add("all-reduce of tensor parallelism", (1 if is_apart else 2) * work.layers, 2.0 * away * message, tensor, tensor)
    if is_apart:
        experts = topology.expert
        sent = message / tensor * work.num_chosen * (experts - 1) / experts
        # replicas lie side by side, and the stages of one behind one another
        add("all-to-all of expert parallelism", 2 * work.layers, sent, experts, experts * topology.pipeline)
        if tensor > 1:
            add("all-gather behind the experts", work.layers, away * message, tensor, tensor)
    if topology.pipeline > 1 and not work.is_last:
        spread = tensor * prefill * topology.pipeline
        add("hand-over between pipeline stages", 1, message / tensor, 2, spread)
        if tensor > 1:
            add("all-gather behind the hand-over", 1, away * message, tensor, tensor)
    if is_shared_out:
        per_token = sum(size for _, size, _ in work.heads) / max(1, work.layers)
        sent = own * per_token * (prefill - 1)
        add("gathering of prefill context parallelism", work.layers, sent, prefill, tensor * prefill)
    if topology.decode_context > 1:
        ranks = topology.decode_context
        width = sum(width for width, _, _ in work.heads) / max(1, work.layers)
        add("gathering of decode context parallelism", 2 * work.layers, own * width * itemsize * (ranks - 1), ranks, ranks)
    return found


def _link(hardware: Hardware, spread: int) -> Link:
    """The slowest link among so many devices that lie side by side."""
    card = hardware.card
    inside, between = card.link, card.network
    if spread > card.joined and between is not None:
        return between
    return inside or between or Link("memory", card.bytes_per_s, 1e-6)
