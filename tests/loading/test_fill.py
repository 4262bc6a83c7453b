"""Fill: parameters find their tensors, and every fault of a checkpoint is told, all in one list, before a weight is read."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from octavo.checkpoint import index
from octavo.checkpoint.names import Add, Expert, Interleave, Part, Row, Skip, Split, Transpose, View
from octavo.errors import CheckpointError
from octavo.layers.stored import Stored
from octavo.loading import dummy
from octavo.loading.fill import Fill
from octavo.ops import gguf_blocks
from octavo.parallel.cut import Cut
from tests.loading.gguf_bytes import write

Make = Callable[..., Fill]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A Fill over a checkpoint of the given tensors."""

    def of(tensors: dict[str, torch.Tensor], *names: Row | Skip, progress: Callable[[int, int], None] | None = None) -> Fill:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
        return Fill(index.read(tmp_path), names, progress)

    return of


def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def place(path: str, *shape: int, cut: Cut | None = None, dtype: torch.dtype = torch.float32) -> Stored:
    return Stored(path, shape, torch.full(shape if cut is None else cut.shape(shape), float("nan"), dtype=dtype), cut)


def on_meta(stored: list[Stored]) -> list[Stored]:
    return [Stored(one.path, one.shape, one.target.to("meta"), one.cut) for one in stored]


def faults_of(fill: Fill, *stored: Stored) -> list[str]:
    with fill, pytest.raises(CheckpointError) as caught:
        fill.check(on_meta(list(stored)))
    assert caught.value.hint
    return [line.strip() for line in caught.value.fact.splitlines()[1:]]


def test_the_default_is_the_parameters_own_name(make: Make) -> None:
    tensors = {"a.weight": random(6, 4), "b.bias": random(5, dtype=torch.float32), "c": random(3, 3, dtype=torch.float16)}
    stored = [place("a.weight", 6, 4), place("b.bias", 5), place("c", 3, 3)]
    with make(tensors) as fill:
        fill.check(on_meta(stored))
        for one in stored:
            fill.fill([one])
        fill.finish()
    for one in stored:
        assert torch.equal(one.target, tensors[one.path].float())


def test_targets_are_places_in_a_larger_tensor_and_may_be_cut(make: Make) -> None:
    q, k = random(8, 4), random(4, 4)
    fused = torch.full((6, 4), float("nan"), dtype=torch.bfloat16)
    with make({"q": q, "k": k}) as fill:
        fill.fill([Stored("q", (8, 4), fused[:4], Cut(0, 4, 4)), Stored("k", (4, 4), fused[4:], Cut(0, 0, 2))])
        fill.finish()
    assert torch.equal(fused, torch.cat([q[4:], k[:2]]))


@pytest.mark.parametrize(
    ("disk", "views", "wanted"),
    [
        ((4, 6), Transpose(), lambda t: t.T),
        ((4, 6), Add(1.0), lambda t: t.float() + 1),
        ((6, 4), Interleave(3), lambda t: torch.cat([t[0::3], t[1::3], t[2::3]])),
    ],
)
def test_a_row_with_a_view(disk: tuple[int, ...], views: View, wanted: Callable[[torch.Tensor], torch.Tensor], make: Make) -> None:
    tensor = random(*disk)
    expected = wanted(tensor).float()
    stored = place("l.3.w", *expected.shape)
    with make({"x.3.y": tensor}, Row("x.{i}.y", "l.{i}.w", views)) as fill:
        fill.check(on_meta([stored]))
        fill.fill([stored])
        fill.finish()
    assert torch.equal(stored.target, expected)


def test_packed_experts_on_disk_fused_and_transposed(make: Make) -> None:
    """experts.gate_up [E, H, 2 I] on disk to one gate and one up [I, H] per expert."""
    packed = random(3, 4, 10)
    rows = [Row("e.gate_up", f"e.{{e}}.{name}", (Expert(), Transpose(), Split(start, 5))) for name, start in (("gate", 0), ("up", 5))]
    stored = [place(f"e.{number}.{name}", 5, 4) for number in range(3) for name in ("gate", "up")]
    with make({"e.gate_up": packed}, *rows) as fill:
        fill.check(on_meta(stored))
        fill.fill(stored)
        fill.finish()
    for one in stored:
        _, number, name = one.path.split(".")
        half = slice(0, 5) if name == "gate" else slice(5, 10)
        assert torch.equal(one.target, packed[int(number)].T[half].float())


def test_a_packed_parameter_from_experts_and_a_parameter_from_parts(make: Make) -> None:
    tensors = {f"e.{number}.w": random(4, 2 + 0 * number) * (number + 1) for number in range(3)} | {"q": random(3, 2), "kv": random(5, 2)}
    rows = [Row("e.{e}.w", "experts", Expert()), Row("kv", "qkv", Part(3, 5)), Row("q", "qkv", Part(0, 3))]
    stored = [place("experts", 3, 4, 2), place("qkv", 8, 2), place("experts2", 1)]
    with make(tensors, *rows) as fill:
        fill.check(on_meta(stored[:2]))
        fill.fill(stored[:2])
        fill.finish()
    assert torch.equal(stored[0].target, torch.stack([tensors[f"e.{number}.w"] for number in range(3)]).float())
    assert torch.equal(stored[1].target, torch.cat([tensors["q"], tensors["kv"]]).float())


def test_all_faults_in_one_list(make: Make) -> None:
    tensors = {
        "right": random(2, 2),
        "shape": random(3, 2),
        "left": random(4),
        "ints": torch.zeros(2, dtype=torch.int64),
        "half": random(4, 2),
    }
    fill = make(tensors, Row("half", "first", Split(0, 2)), Row("other", "renamed"))
    faults = faults_of(
        fill, place("right", 2, 2), place("shape", 2, 3), place("gone", 2), place("ints", 2), place("first", 2, 2), place("renamed", 2)
    )
    assert sorted(faults) == sorted(
        [
            "shape has shape [3, 2] in the checkpoint, [2, 3] in the model",
            "gone is missing",
            "ints: ints is in I64, which is not read here (known: F64, F32, F16, BF16)",
            "renamed is missing (looked for as other)",
            "left [4] is used by no part of the model",
            "ints [2] is used by no part of the model",
            "half [4, 2]: 4 of 8 elements are used, by first",
        ]
    )


def test_one_tensor_for_two_parameters(make: Make) -> None:
    rows = [Row("x", "a"), Row("x", "b")]
    assert faults_of(make({"x": random(2)}, *rows), place("a", 2), place("b", 2)) == [
        "x is used twice: by a and by b",
    ]
    overlapping = [Row("x", "a", Split(0, 3)), Row("x", "b", Split(1, 3))]
    assert faults_of(make({"x": random(4)}, *overlapping), place("a", 3), place("b", 3)) == ["x [4]: 6 of 4 elements are used, by a, b"]


def test_parts_with_a_gap(make: Make) -> None:
    faults = faults_of(make({"x": random(2), "y": random(2)}, Row("x", "a", Part(0, 2)), Row("y", "a", Part(3, 2))), place("a", 5))
    assert "do not follow one another" in faults[0]


def test_skips(make: Make) -> None:
    tensors = {"a": random(2), "off.3.w": random(2), "model.layers.1.self_attn.rotary_emb.inv_freq": random(2, dtype=torch.float32)}
    with make(tensors, Skip("off.{i}.w", "switched off")) as fill:
        fill.check([place("a", 2)])
    assert faults_of(make(tensors), place("a", 2)) == ["off.3.w [2] is used by no part of the model"]


def test_a_tied_head_on_disk_must_repeat_the_embedding(make: Make) -> None:
    skip = Skip("lm_head.weight", "the head is the embedding", same_as="model.embed_tokens.weight")
    embedding = random(4, 2)
    stored = place("model.embed_tokens.weight", 4, 2)
    with make({stored.path: embedding, "lm_head.weight": embedding.clone()}, skip) as fill:
        fill.check([stored])
    faults = faults_of(make({stored.path: embedding, "lm_head.weight": embedding + 1}, skip), stored)
    assert "lm_head.weight should repeat model.embed_tokens.weight" in faults[0]


def test_many_faults_are_counted(make: Make) -> None:
    faults = faults_of(make({"a": random(1)}), *[place(f"p.{number}", 1) for number in range(100)])
    assert len(faults) == 41
    assert faults[-1] == "and 61 more"


def test_fill_and_finish_without_check_are_as_strict(make: Make) -> None:
    with make({"a": random(2), "b": random(2)}) as fill, pytest.raises(CheckpointError, match="c is missing"):
        fill.fill([place("c", 2)])
    with make({"a": random(2), "b": random(2)}) as fill:
        fill.fill([place("a", 2)])
        with pytest.raises(CheckpointError, match=r"b .* is used by no part"):
            fill.finish()


def test_nothing_is_filled_twice_or_forgotten(make: Make) -> None:
    stored = [place("a", 2), place("b", 2)]
    with make({"a": random(2), "b": random(2)}) as fill:
        fill.check(on_meta(stored))
        fill.fill(stored[:1])
        with pytest.raises(ValueError, match="filled before"):
            fill.fill(stored[:1])
        with pytest.raises(ValueError, match="never filled: b"):
            fill.finish()


def test_progress_ends_at_the_whole(make: Make) -> None:
    seen: list[tuple[int, int]] = []
    with make({"a": random(8), "b": random(4, 4)}, progress=lambda done, total: seen.append((done, total))) as fill:
        fill.fill([place("a", 8), place("b", 4, 4)])
        fill.finish()
    assert seen == [(16, 48), (48, 48), (48, 48)]


def test_threads_are_as_many_afterwards_as_before(make: Make) -> None:
    before = torch.get_num_threads()
    with make({"a": random(300, 1000)}) as fill:
        with pytest.raises(RuntimeError):  # the step's own error, from its thread
            fill.fill([_Bad()])  # type: ignore[list-item]
        assert torch.get_num_threads() == before


class _Bad:
    """A place that cannot be written to: its rows are one row."""

    path, shape, cut = "a", (300, 1000), None
    number_format = None
    default = None
    is_flat = False

    @property
    def target(self) -> torch.Tensor:
        return torch.zeros(1, 1000).expand(300, 1000)


def test_a_gguf_file_that_cannot_be_read(tmp_path: Path) -> None:
    from tests.unit.checkpoint.test_gguf_config import header

    tensors = {
        "output_norm.weight": ((64,), 0, bytes(256)),
        "blk.0.attn_v.weight": ((32, 256), 16, bytes(32 * 66)),
        "new.weight": ((4,), 0, bytes(16)),
    }
    fill = Fill(index.read(header(tmp_path, "llama", {}, tensors)))
    stored = [
        place("model.embed_tokens.weight", 8, 64),
        place("model.norm.weight", 64),
        place("model.layers.0.self_attn.v_proj.weight", 32, 256),
    ]
    assert faults_of(fill, *stored, place("lm_head.weight", 8, 64)) == [
        "model.layers.0.self_attn.v_proj.weight: blk.0.attn_v.weight is in IQ2_XXS, which is not read here "
        f"(known: {', '.join(gguf_blocks.FORMATS)})",
        "lm_head.weight is missing (looked for as output.weight)",
        "blk.0.attn_v.weight [32, 256] is used by no part of the model",
        "new.weight [4] is used by no part of the model",
    ]


@pytest.mark.parametrize("packed", [True, False])
def test_mixtral_in_gguf_packed_and_split(packed: bool, tmp_path: Path) -> None:
    from tests.unit.checkpoint.test_gguf_config import header

    random_values = np.random.default_rng(0).normal(size=(3, 4, 64)).astype("<f4")
    if packed:
        tensors = {"blk.0.ffn_gate_exps.weight": ((3, 4, 64), 0, random_values.tobytes())}
    else:
        tensors = {f"blk.0.ffn_gate.{number}.weight": ((4, 64), 0, random_values[number].tobytes()) for number in range(3)}
    stored = [place(f"model.layers.0.block_sparse_moe.experts.{number}.w1.weight", 4, 64) for number in range(3)]
    stored.append(place("model.embed_tokens.weight", 8, 64))
    # the model's own row for checkpoints that pack: it does not hide GGUF's
    views = (Expert(), Split(0, 4))
    own = Row("model.layers.{i}.mlp.experts.gate_up_proj", "model.layers.{i}.block_sparse_moe.experts.{e}.w1.weight", views)
    with Fill(index.read(header(tmp_path, "llama", {"expert_count": 3, "expert_used_count": 2}, tensors)), [own]) as fill:
        fill.check(on_meta(stored))
        fill.fill(stored)
        fill.finish()
    assert np.array_equal(torch.stack([one.target for one in stored[:3]]).numpy(), random_values)


def test_the_q_and_k_order_of_llama_is_undone_by_heads(tmp_path: Path) -> None:
    from tests.unit.checkpoint.test_gguf_config import header

    q, k = (np.random.default_rng(rows).normal(size=(rows, 64)).astype("<f4") for rows in (64, 32))

    def permuted(weight: np.ndarray, heads: int) -> bytes:
        return weight.reshape(heads, 2, 8, 64).swapaxes(1, 2).tobytes()

    tensors = {"blk.0.attn_q.weight": ((64, 64), 0, permuted(q, 4)), "blk.0.attn_k.weight": ((32, 64), 0, permuted(k, 2))}
    stored = [place("model.layers.0.self_attn.q_proj.weight", 64, 64), place("model.layers.0.self_attn.k_proj.weight", 32, 64)]
    stored.append(place("model.embed_tokens.weight", 8, 64))
    with Fill(index.read(header(tmp_path, "llama", {}, tensors))) as fill:
        fill.fill(stored)
        fill.finish()
    assert np.array_equal(stored[0].target.numpy(), q)
    assert np.array_equal(stored[1].target.numpy(), k)


def test_a_file_cut_short_after_it_was_indexed(tmp_path: Path, make: Make) -> None:
    fill = make({"a": random(64)})
    file = write(tmp_path / "x.gguf", {})
    size = (tmp_path / "model.safetensors").stat().st_size
    (tmp_path / "model.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes()[: size - 8])
    file.unlink()
    with fill, pytest.raises(CheckpointError, match="ends before a"):
        fill.fill([place("a", 64)])


def test_dummy_weights_depend_on_seed_and_path_alone() -> None:
    def filled(path: str, shape: tuple[int, ...], seed: int = 0, cut: Cut | None = None) -> torch.Tensor:
        stored = place(path, *shape, cut=cut)
        dummy.fill([stored], seed)
        assert stored.target.isfinite().all()
        return stored.target

    whole = filled("l.weight", (64, 32))
    assert torch.equal(whole, filled("l.weight", (64, 32)))
    assert not torch.equal(whole, filled("l.weight", (64, 32), seed=1))
    assert not torch.equal(whole, filled("m.weight", (64, 32)))
    assert torch.equal(whole[16:32], filled("l.weight", (64, 32), cut=Cut(0, 16, 16)))
    assert abs(float(whole.std()) * 32**0.5 - 1) < 0.1
    assert abs(float(filled("norm.weight", (64,)).mean()) - 1) < 0.02
    assert float(filled("bias", (64,)).abs().max()) <= 0.02
