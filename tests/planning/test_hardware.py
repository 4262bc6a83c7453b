"""The hardware table: every card has what a plan asks of it, figures hang together, and the names that people type are found."""

import pytest

from octavo.config.machine import look
from octavo.errors import ConfigError
from octavo.planning import hardware

CARDS = {name: card for name, card in hardware.cards().items() if card.kind == "gpu"}
WANTED = "a100 a100-40 l4 l40s t4 h20 h100 h200 b200 b300 gb200 gb300 mi300x mi325x mi350x mi355x rtx4090 rtx5090 rtx6000"


def test_every_card_that_people_rent_is_there() -> None:
    assert set(WANTED.split()) <= set(CARDS)


@pytest.mark.parametrize("name", CARDS)
def test_a_card_says_what_a_plan_asks(name: str) -> None:
    card = CARDS[name]
    label = int(card.name.split()[-2])
    # what the driver gives is less than the label says in GiB, and no less than 9 tenths of it in GB, which some labels mean
    assert 0.9 * label * 1e9 / hardware.GIB < card.memory_gib < label
    assert card.link is not None
    assert card.network is not None
    assert card.link.bytes_per_s * (7 if card.link.is_mesh else 1) < card.bytes_per_s
    assert len(card.source) > 40
    assert ("derived" in card.source) or ("as given there" in card.source)
    assert 1 <= card.per_node <= card.joined


@pytest.mark.parametrize("name", CARDS)
def test_narrower_numbers_are_multiplied_at_least_as_fast(name: str) -> None:
    rates = CARDS[name].rates
    assert rates["bf16"] <= rates.get("fp8", rates["bf16"])
    assert rates.get("fp8", 0.0) <= rates.get("fp4", rates.get("fp8", 0.0))
    assert CARDS[name].rate("int3") == rates["bf16"]


# dense tera-operations a second and gigabytes a second as the makers' documents give them, once more and by hand
PUBLISHED = {
    "t4": (65, None, 320),
    "a100": (312, None, 2039),
    "l40s": (362.05, 733, 864),
    "h100": (1979 / 2, 3958 / 2, 3350),
    "h200": (1979 / 2, 3958 / 2, 4800),
    "b200": (36_000 / 8 / 2, 72_000 / 8 / 2, 64_000 / 8),
    "gb200": (360_000 / 72 / 2, 720_000 / 72 / 2, 576_000 / 72),
    "mi300x": (1307.4, 2614.9, 5300),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_rates_are_those_of_the_documents(name: str) -> None:
    card, (half, eighth, bandwidth) = CARDS[name], PUBLISHED[name]
    assert card.rates["bf16"] == pytest.approx(half * 1e12, rel=1e-3)
    assert card.rates.get("fp8") == (None if eighth is None else pytest.approx(eighth * 1e12, rel=1e-3))
    assert card.bytes_per_s == pytest.approx(bandwidth * 1e9, rel=1e-3)


@pytest.mark.parametrize(
    ("typed", "card", "count"),
    [
        ("h200x8", "h200", 8),
        ("8xH200", "h200", 8),
        ("a100-80gb", "a100", 1),
        ("a100-40gb*4", "a100-40", 4),
        ("h100-sxm", "h100", 1),
        ("h100_pcie x2", "h100-pcie", 2),
        ("rtx-4090x2", "rtx4090", 2),
        ("RTX PRO 6000", "rtx6000", 1),
        ("rtx-pro-6000", "rtx6000", 1),
        ("mi300x", "mi300x", 1),
        ("mi300xx8", "mi300x", 8),
    ],
)
def test_names_that_people_type_are_found(typed: str, card: str, count: int) -> None:
    found = hardware.parse(typed)
    assert (found.card, found.count) == (CARDS[card], count)


def test_no_two_cards_share_a_name() -> None:
    typed = [each for name, card in hardware.cards().items() for each in (name, *card.aliases)]
    assert len(typed) == len(set(typed))


def test_an_unknown_card_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="unknown card 'h10'") as caught:
        hardware.parse("h10x2")
    assert caught.value.hint is not None
    assert "h100" in caught.value.hint
    with pytest.raises(ConfigError, match="no devices"):
        hardware.parse("0xh100")


def test_cpu_is_this_machine() -> None:
    card = hardware.parse("cpu").card
    assert card.memory_gib == look().total_bytes / hardware.GIB
    assert card.kind == "cpu"


def test_devices_of_a_mesh_have_a_link_to_each_other() -> None:
    link = CARDS["mi300x"].link
    assert link is not None
    assert [link.rate(devices) for devices in (2, 4, 8)] == [64e9, 192e9, 448e9]
    link = CARDS["h100"].link
    assert link is not None
    assert [link.rate(devices) for devices in (2, 8)] == [450e9, 450e9]
