"""Views: each does what its definition says, put() undoes it, and cutting before reading gives what cutting after would."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.checkpoint.names import Add, Expert, Interleave, Part, RopePermutation, Split, Transpose, View
from octavo.loading import views
from octavo.loading.views import Joined, Lazy, Plain, apply, lazily, put, undo

PERMUTING = [Transpose(), Interleave(2), Interleave(3), Interleave(4, axis=1), RopePermutation(3), RopePermutation(6), Add(-1.0)]
SLICING = [Split(3, 5), Split(4, 2, axis=1), Expert(2)]


def numbered(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape)


def through(chain: list[View], tensor: torch.Tensor) -> Lazy:
    lazy: Lazy = Plain(tensor)
    for view in chain:
        lazy = lazily(view, lazy)
    return lazy


def test_interleave_is_what_it_says() -> None:
    disk = numbered(6)
    assert apply(Interleave(2), disk).tolist() == [0, 2, 4, 1, 3, 5]
    count, length = 3, 2
    parameter = apply(Interleave(3), disk)
    assert all(parameter[p * length + j] == disk[j * count + p] for p in range(count) for j in range(length))


def test_rope_permutation_is_what_it_says() -> None:
    heads, half = 2, 3
    disk = numbered(12, 2)
    parameter = apply(RopePermutation(heads), disk)
    for head in range(heads):
        for p in range(2):
            for j in range(half):
                assert torch.equal(parameter[head * 6 + p * half + j], disk[head * 6 + 2 * j + p])


def test_rope_permutation_undoes_llama_cpps_permute() -> None:
    """LlamaModel.permute of llama.cpp's converter, written with its own reshape."""
    weight, heads = numbered(24, 5), 3
    permuted = weight.reshape(heads, 2, 24 // heads // 2, 5).swapaxes(1, 2).reshape(weight.shape)
    assert torch.equal(apply(RopePermutation(heads), permuted), weight)
    assert torch.equal(undo(RopePermutation(heads), weight), permuted)


@pytest.mark.parametrize("view", PERMUTING, ids=str)
def test_permuting_views_have_an_inverse(view: View) -> None:
    disk = numbered(12, 8)
    assert torch.equal(undo(view, apply(view, disk)), disk)


@pytest.mark.parametrize("view", SLICING, ids=str)
def test_slicing_views_write_their_own_elements_only(view: View) -> None:
    disk = numbered(12, 8)
    parameter = apply(view, disk)
    written = torch.full_like(disk, -1.0)
    put(written, [view], parameter)
    assert torch.equal(apply(view, written), parameter)
    assert int((written != -1.0).sum()) == parameter.numel()


CHAINS: list[list[View]] = [
    [Expert(1), Split(2, 4), Transpose()],
    [Expert(0), Interleave(2), Split(0, 4)],
    [Transpose(), Expert(2), Interleave(4), Split(5, 3, axis=1)],
    [Expert(2), RopePermutation(2), Add(0.5)],
    [Interleave(2, axis=1), Expert(1), Split(4, 4)],
]


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_chains_write_what_they_read(chain: list[View]) -> None:
    disk = numbered(3, 8, 8)
    parameter = through(chain, disk).read()
    written = torch.zeros_like(disk)
    put(written, chain, parameter)
    assert torch.equal(through(chain, written).read(), parameter)


@pytest.mark.parametrize(
    "view", [Split(10, 5), Split(0, 9, axis=1), Split(0, 1, axis=2), Expert(12), RopePermutation(5), Interleave(5)], ids=str
)
def test_views_that_do_not_fit_say_so(view: View) -> None:
    with pytest.raises(ValueError, match=r"shape|divide"):
        lazily(view, Plain(numbered(12, 8)))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    view=st.sampled_from([*PERMUTING, *SLICING]),
    second=st.sampled_from([Transpose(), Interleave(2), Add(2.0), Split(1, 2)]),
    data=st.data(),
)
def test_cutting_before_reading_is_cutting_after(view: View, second: View, data: st.DataObject) -> None:
    disk = numbered(12, 12, 8)
    lazy = through([view], disk)
    if not (isinstance(second, Interleave) and lazy.shape[0] % 2):
        lazy = lazily(second, lazy)
    whole = lazy.read()
    assert lazy.shape == tuple(whole.shape)
    for _ in range(2):
        axis = data.draw(st.integers(0, len(lazy.shape) - 1))
        start = data.draw(st.integers(0, lazy.shape[axis] - 1))
        size = data.draw(st.integers(1, lazy.shape[axis] - start))
        lazy, whole = lazy.cut(axis, start, size), whole.narrow(axis, start, size)
        assert lazy.shape == tuple(whole.shape)
        assert torch.equal(lazy.read(), whole)


@pytest.mark.parametrize("view", PERMUTING, ids=str)
@pytest.mark.parametrize("chunk", [1, 20, 1 << 20])
def test_writing_in_steps_is_writing_the_whole(view: View, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "CHUNK_ELEMENTS", chunk)
    lazy = lazily(view, Plain(numbered(12, 8)))
    target = torch.full(lazy.shape, float("nan"))
    lazy.write_to(target)
    assert torch.equal(target, lazy.read())
    assert (len(list(lazy.steps(target))) > 1) == (chunk < 96 and lazy.row_step < 12)


def test_steps_end_between_heads_through_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step in the middle of a head would read the whole tensor again."""
    monkeypatch.setattr(views, "CHUNK_ELEMENTS", 1)
    lazy = through([RopePermutation(3), Add(1.0)], numbered(12, 8))
    assert len(list(lazy.steps(torch.zeros(12, 8)))) == 3


def test_joined_parts_and_stacked_experts() -> None:
    whole = numbered(10, 4)
    joined = Joined([Plain(whole[:3]), Plain(whole[3:4]), Plain(whole[4:])])
    stacked = Joined([Plain(whole + number) for number in range(3)], stacked=True)
    for lazy, wanted in ((joined, whole), (stacked, torch.stack([whole, whole + 1, whole + 2]))):
        target = torch.zeros(lazy.shape)
        lazy.write_to(target)
        assert torch.equal(target, wanted)
        for axis, start, size in ((0, 1, 2), (1, 1, 3), (0, 2, 1)):
            assert torch.equal(lazy.cut(axis, start, size).read(), wanted.narrow(axis, start, size))
    assert torch.equal(Joined([Plain(whole[:, :1]), Plain(whole[:, 1:])], axis=1).cut(1, 0, 3).read(), whole[:, :3])


def test_a_part_is_written_from_its_place() -> None:
    parameter, disk = numbered(10, 4), torch.zeros(3, 4)
    put(disk, [Part(4, 3)], parameter)
    assert torch.equal(disk, parameter[4:7])
    put(disk, [Expert(1, is_packed_on_disk=False)], numbered(2, 3, 4))
    assert torch.equal(disk, numbered(2, 3, 4)[1])
