"""What a step sends between devices: every collective against numbers worked out by hand."""

import msgspec
import pytest

from octavo.planning import communication
from octavo.planning.communication import Collective
from octavo.planning.hardware import Card, Hardware, Link
from octavo.planning.topology import Topology
from octavo.planning.work import Work

LINK = Link("inside", 100e9, 5e-6)
NETWORK = Link("between", 10e9, 20e-6)
# 4 layers, hidden states of 1,000 numbers, on each device 8 heads of 64 and a cache of 256 bytes a token and layer
DENSE = Work(
    layers=4,
    is_last=False,
    hidden=1000,
    vocabulary=5000,
    dense_products=0,
    dense_bytes=0,
    expert_products=0,
    expert_bytes=0,
    experts=0,
    num_experts=0,
    num_chosen=0,
    head_products=0,
    head_bytes=0,
    heads=[(4 * 8 * 64, 4 * 256, 0)],
)
MIXTURE = msgspec.structs.replace(DENSE, experts=2, num_experts=16, num_chosen=4)
LAST = msgspec.structs.replace(DENSE, is_last=True)


def hardware(count: int, *, is_mesh: bool = False, joins: int | None = None) -> Hardware:
    link = Link("inside", 100e9, 5e-6, is_mesh, joins)
    card = Card(name="card", kind="gpu", memory_gib=1.0, bytes_per_s=1e12, rates={"bf16": 1e14}, per_node=8, link=link, network=NETWORK)
    return Hardware(card, count)


def sent(work: Work, topology: Topology, tokens: int = 10, rows: int = 10, count: int = 64) -> dict[str, Collective]:
    found = communication.of_a_step(work, topology, hardware(count), tokens, rows)
    return {each.name: each for each in found}


def test_one_device_sends_nothing() -> None:
    assert sent(DENSE, Topology()) == {}
    assert sent(MIXTURE, Topology(is_expert_parallel=True)) == {}


def test_replicas_of_a_dense_model_send_each_other_nothing() -> None:
    assert sent(DENSE, Topology(data=4)) == {}


def test_tensor_parallelism_adds_up_twice_a_layer() -> None:
    (reduce,) = sent(DENSE, Topology(tensor=4)).values()
    # 10 tokens x 1,000 x 2 bytes = 20,000; x 2 x 3/4
    assert (reduce.count, reduce.bytes_sent, reduce.total_bytes) == (8, 30_000, 240_000)
    assert reduce.seconds == pytest.approx(8 * (5e-6 + 30_000 / 100e9))


def test_small_messages_take_the_latency_and_large_ones_the_bandwidth() -> None:
    small = sent(DENSE, Topology(tensor=8), 1, 1)["all-reduce of tensor parallelism"]
    large = sent(DENSE, Topology(tensor=8), 100_000, 1)["all-reduce of tensor parallelism"]
    assert small.seconds == pytest.approx(small.count * 5e-6, rel=0.01)
    assert large.seconds == pytest.approx(large.total_bytes / 100e9, rel=0.01)


def test_more_devices_than_a_machine_has_speak_over_the_network() -> None:
    assert sent(DENSE, Topology(tensor=8))["all-reduce of tensor parallelism"].link == LINK
    assert sent(DENSE, Topology(tensor=16))["all-reduce of tensor parallelism"].link == NETWORK
    rack = hardware(64, joins=64)
    (reduce,) = communication.of_a_step(DENSE, Topology(tensor=16), rack, 10, 10)
    assert reduce.link.name == "inside"


def test_a_mesh_has_a_link_for_each_pair() -> None:
    (reduce,) = communication.of_a_step(DENSE, Topology(tensor=4), hardware(4, is_mesh=True), 10, 10)
    assert reduce.bytes_per_s == 300e9


def test_experts_get_tokens_from_all_replicas_and_send_them_back() -> None:
    found = sent(MIXTURE, Topology(data=8, is_expert_parallel=True))
    (exchange,) = found.values()
    # each of 10 tokens goes to 4 experts, 7 of 8 of them elsewhere: 20,000 x 4 x 7/8, there and back in 4 layers
    assert (exchange.count, exchange.bytes_sent) == (8, 70_000)
    assert exchange.link == LINK


def test_experts_of_tensor_parallel_ranks_take_their_share_of_tokens() -> None:
    found = sent(MIXTURE, Topology(tensor=4, data=4, is_expert_parallel=True))
    exchange, gather = found["all-to-all of expert parallelism"], found["all-gather behind the experts"]
    assert exchange.bytes_sent == pytest.approx(20_000 / 4 * 4 * 15 / 16)
    assert exchange.link == NETWORK
    assert (gather.count, gather.bytes_sent, gather.link) == (4, 15_000, LINK)
    assert found["all-reduce of tensor parallelism"].count == 4  # behind attention alone


def test_experts_that_are_cut_are_added_up_as_a_dense_layer() -> None:
    found = sent(MIXTURE, Topology(tensor=4))
    assert list(found) == ["all-reduce of tensor parallelism"]
    assert found["all-reduce of tensor parallelism"].count == 8


def test_a_pipeline_hands_on_once_between_two_stages() -> None:
    found = sent(DENSE, Topology(pipeline=2))
    assert [(each.count, each.bytes_sent, each.link) for each in found.values()] == [(1, 20_000, LINK)]
    assert sent(LAST, Topology(pipeline=2)) == {}
    found = sent(DENSE, Topology(tensor=8, pipeline=2))
    handed, gathered = found["hand-over between pipeline stages"], found["all-gather behind the hand-over"]
    assert (handed.bytes_sent, handed.link) == (2_500, NETWORK)
    assert (gathered.bytes_sent, gathered.link) == (17_500, LINK)


def test_decode_context_parallelism_gathers_queries_and_adds_up_outputs() -> None:
    found = sent(DENSE, Topology(tensor=4, decode_context=2))
    gather = found["gathering of decode context parallelism"]
    # 8 heads x 64 x 2 bytes x 10 tokens to one other, twice in each of 4 layers
    assert (gather.count, gather.bytes_sent) == (8, 10_240)


def test_prefill_context_parallelism_shares_out_prompts_and_not_decoding() -> None:
    assert sent(DENSE, Topology(prefill_context=4)) == {}
    (gather,) = sent(DENSE, Topology(prefill_context=4), tokens=1000, rows=1).values()
    # 250 tokens x 256 bytes to 3 others in 4 layers
    assert (gather.count, gather.bytes_sent) == (4, 250 * 256 * 3)
    found = sent(DENSE, Topology(tensor=2, prefill_context=4), tokens=1000, rows=1)
    assert found["all-reduce of tensor parallelism"].bytes_sent == 250 * 1000 * 2
