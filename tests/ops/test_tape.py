"""A tape does what was recorded, over whatever is in the buffers then, on however many threads; what it cannot hold it names."""

import itertools

import pytest
import torch

from octavo.device.arena import Arena
from octavo.ops.cpu import pool
from octavo.ops.cpu.compile import running
from octavo.ops.linear import Facts
from octavo.ops.op import choose
from octavo.ops.tape import recording
from octavo.worker.tapes import MOST_BYTES, Forward, Key, Tapes, longest


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


class Chain:
    """Products one after the other, each of which needs all of the one before it; the middle one has work for one thread only."""

    def __init__(self) -> None:
        sizes = (64, 96, 8, 640, 64)
        self.facts = [Facts(in_features=k, out_features=n, dtype=torch.float32) for k, n in itertools.pairwise(sizes)]
        self.products = [choose("linear", facts).implementation for facts in self.facts]
        torch.manual_seed(1)
        self.weights = [p.pack(torch.randn(f.out_features, f.in_features), f) for p, f in zip(self.products, self.facts)]
        self.buffers = [torch.empty(3, size) for size in sizes]

    def __call__(self) -> None:
        for product, weight, x, out in zip(self.products, self.weights, self.buffers, self.buffers[1:]):
            product(out, x, weight)


def test_a_replay_is_the_work_itself(threads: int) -> None:
    chain = Chain()
    chain.buffers[0].normal_()
    with recording("cpu") as record:
        chain()
    recorded = record.tape()
    assert recorded is not None
    assert record.foreign is None
    for seed in range(20):
        chain.buffers[0].normal_(generator=torch.Generator().manual_seed(seed))
        chain()
        expected = [buffer.clone() for buffer in chain.buffers]
        for buffer in chain.buffers[1:]:
            buffer.fill_(float("nan"))
        recorded.replay()
        for buffer, wanted in zip(chain.buffers, expected):
            assert torch.equal(buffer, wanted)


def test_one_callback_may_stand_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that has fewer threads than were counted gives one of them several parts."""
    chain = Chain()
    chain.buffers[0].normal_()
    torch_threads = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    with recording("cpu") as record:
        chain()
    recorded = record.tape()
    monkeypatch.undo()
    expected = chain.buffers[-1].clone()
    torch.set_num_threads(1)
    try:
        chain.buffers[-1].zero_()
        assert recorded is not None
        recorded.replay()
    finally:
        torch.set_num_threads(torch_threads)
    assert torch.equal(chain.buffers[-1], expected)


def test_what_torch_computes_is_foreign_and_views_are_not() -> None:
    chain = Chain()
    with recording("cpu") as record:
        chain()
        chain.buffers[0][:2].view(-1).split(32)
    assert record.tape() is not None
    with recording("cpu") as record:
        chain()
        chain.buffers[0].mul_(2)
    assert record.tape() is None
    assert record.foreign == "torch computes aten.mul_.Tensor"


def test_calls_go_to_who_looks_on_and_then_to_the_pool_again() -> None:
    chain, seen = Chain(), []
    with running(lambda kernel, count, grain, arguments: seen.append((kernel.name, count))):
        chain()
    assert len(seen) == 4
    chain()
    assert len(seen) == 4


def test_tapes_of_little_used_rows_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, ran = Chain(), []
    tapes = Tapes(8, "cpu", Arena(torch.empty(64, dtype=torch.uint8)))

    def forward() -> Forward:
        ran.append(1)
        chain()
        return Forward(chain.buffers[-1], None)

    assert tapes.run(Key(1, 1024, True), forward).hidden is chain.buffers[-1]
    tapes.run(Key(1, 1024, True), forward)
    assert len(ran) == 1
    tapes.run(Key(9, 1024, True), forward)
    tapes.run(Key(9, 1024, True), forward)
    assert len(ran) == 3, "more rows than are recorded"
    monkeypatch.setattr("octavo.worker.tapes.MOST_BYTES", 1)
    tapes.run(Key(2, 1024, True), forward)
    tapes.run(Key(1, 1024, True), forward)
    assert len(ran) == 5, "the first one has gone"
    assert MOST_BYTES > 1


def test_lengths_are_rounded_up_to_few() -> None:
    assert [longest(n, 100_000) for n in (1, 1024, 1025, 2048, 5000)] == [1024, 1024, 2048, 2048, 8192]
    assert longest(90, 96) == 96
    assert longest(70_000, 100_000) == 100_000


def test_scratch_that_grows_stays_where_a_tape_knows_it() -> None:
    first = pool.scratch(8)
    size = pool._scratch[-1].numel()
    assert pool.scratch(size + 1) != first
    assert any(each.data_ptr() == first for each in pool._scratch)
