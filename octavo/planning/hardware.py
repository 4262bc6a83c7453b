"""Hardware: the cards that a plan can be for (hardware.toml), and this machine's own processor."""

import difflib
import re
import tomllib
from functools import cache
from pathlib import Path

import msgspec

from octavo.config import machine
from octavo.config.machine import MachineFacts
from octavo.device.cpu import RUNTIME_BYTES
from octavo.errors import ConfigError

GIB = 2**30


class Link(msgspec.Struct, frozen=True):
    """How devices reach one another. bytes_per_s: of one device, in one direction; of a mesh, of each pair. latency_s: of one message."""

    name: str
    bytes_per_s: float
    latency_s: float
    is_mesh: bool = False  # every two devices have a link of their own, so that a device has more bandwidth among more
    joins: int | None = None  # devices that it reaches, where they are not those of a machine

    def rate(self, devices: int) -> float:
        """Bytes a second that one of so many devices sends, to all others at once."""
        return self.bytes_per_s * (max(1, devices - 1) if self.is_mesh else 1)


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One device.

    memory_gib: what a process can have of it when nobody else does. runtime_gib: what driver, libraries and communication take of that.
    graph_gib: what captured graphs take. rates: dense multiply-adds counted as two operations a second, by number format of the inputs.
    """

    name: str
    aliases: list[str] = []
    kind: str  # "gpu" | "cpu"
    memory_gib: float
    runtime_gib: float = 0.0
    graph_gib: float = 0.0
    bytes_per_s: float
    rates: dict[str, float]
    per_node: int = 1  # devices that one machine has
    link: Link | None = None  # within a machine
    network: Link | None = None  # between machines, for each device
    compute_capability: float | None = None
    source: str = ""

    @property
    def memory_bytes(self) -> int:
        return int(self.memory_gib * GIB)

    @property
    def joined(self) -> int:
        """Devices among which the fast link reaches."""
        return self.per_node if self.link is None or self.link.joins is None else self.link.joins

    def rate(self, number_format: str) -> float:
        """Operations a second with inputs in that format; a format that the card does not multiply is multiplied as bf16."""
        return self.rates.get(number_format, self.rates["bf16"])


class Hardware(msgspec.Struct, frozen=True):
    """So many devices of one kind."""

    card: Card
    count: int

    @property
    def name(self) -> str:
        return f"{self.count} x {self.card.name}"

    @property
    def num_nodes(self) -> int:
        return -(-self.count // self.card.per_node)

    def facts(self) -> MachineFacts:
        """What `resolve` decides defaults by."""
        if self.card.kind == "cpu":
            return machine.look()
        memory = self.card.memory_bytes
        return MachineFacts(cores=1, total_bytes=memory, available_bytes=memory, device="gpu", is_a100=self.card.name.startswith("A100"))


@cache
def cards() -> dict[str, Card]:
    """Every card of the table, by the name that users type."""
    table = tomllib.loads(Path(__file__).with_name("hardware.toml").read_text(encoding="utf-8"))
    return {name: msgspec.convert(entry, Card) for name, entry in table.items()}


@cache
def names() -> dict[str, str]:
    """Card names by what users type: their own and their aliases."""
    return {typed: name for name, card in cards().items() for typed in (name, *card.aliases)}


def parse(text: str) -> Hardware:
    """`h200x8`, `8xh200`, `h200`, `cpu`. Raises ConfigError, with the nearest name."""
    lower = text.strip().lower().replace(" ", "").replace("_", "-")
    count = 1
    if (before := re.fullmatch(r"(\d+)[x*](.+)", lower)) is not None:
        count, lower = int(before[1]), before[2]
    elif (behind := re.fullmatch(r"(.+?)[x*](\d+)", lower)) is not None and lower not in names():
        lower, count = behind[1], int(behind[2])
    if count < 1:
        raise ConfigError(f"--hardware {text}: no devices")
    if lower == "cpu":
        return Hardware(this_cpu(), count)
    if lower not in names():
        near = difflib.get_close_matches(lower, names(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: cpu, {', '.join(cards())}; with a number as h200x8"
        raise ConfigError(f"--hardware {text}: unknown card {lower!r}", hint)
    return Hardware(cards()[names()[lower]], count)


def this_cpu() -> Card:
    """This machine. Its rates are those of the table's reference processor until it is calibrated."""
    facts = machine.look()
    return msgspec.structs.replace(
        cards()["zen4-2c"],
        name="CPU of this machine",
        memory_gib=facts.total_bytes / GIB,
        runtime_gib=RUNTIME_BYTES / GIB,
        source="read from this machine",
    )
