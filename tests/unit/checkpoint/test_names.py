"""Names: patterns bind, rows find what they name in both directions, and the default is the parameter's own name."""

import pytest

from octavo.checkpoint.names import Add, Expert, Located, Names, Part, Row, Skip, Split, Transpose, expand_experts, fill_in, match

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize(
    ("pattern", "name", "numbers"),
    [
        ("blk.{i}.attn_q.weight", "blk.12.attn_q.weight", {"i": 12}),
        ("blk.{i}.attn_q.weight", "blk.12.attn_qxweight", None),
        ("blk.{i}.attn_q.weight", "blk.012.attn_q.weight", None),
        ("a.{i}.b.{e}.c", "a.0.b.7.c", {"i": 0, "e": 7}),
        ("a.{i}.b.{i}", "a.3.b.3", {"i": 3}),
        ("a.{i}.b.{i}", "a.3.b.4", None),
        ("plain", "plain", {}),
        ("blk.{i}.w", "blk.1.w.more", None),
    ],
)
def test_patterns(pattern: str, name: str, numbers: dict[str, int] | None) -> None:
    assert match(pattern, name) == numbers
    if numbers is not None:
        assert fill_in(pattern, numbers) == name


def test_a_row_binds_in_both_directions() -> None:
    row = Row("blk.{i}.ffn_gate_exps.weight", "model.layers.{i}.experts.{e}.w1.weight", (Expert(), Split(0, 4)))
    assert row.bind("model.layers.2.experts.5.w1.weight") == Located("blk.2.ffn_gate_exps.weight", (Expert(5), Split(0, 4)))
    assert row.bind("model.layers.2.experts.5.w2.weight") is None
    assert row.bind_disk("blk.2.ffn_gate_exps.weight") == (
        "model.layers.2.experts.{e}.w1.weight",
        Located("blk.2.ffn_gate_exps.weight", (Expert(None), Split(0, 4))),
    )
    assert row.bind_disk("blk.2.other") is None


def test_a_packed_parameter_is_made_of_one_piece_per_expert() -> None:
    names = Names.of([Row("l.{i}.experts.{e}.w1.weight", "l.{i}.experts.w1", (Transpose(), Expert()))])
    way, default = names.candidates("l.3.experts.w1")
    assert default == [Located("l.3.experts.w1")]
    assert expand_experts(way, 2) == [
        Located("l.3.experts.0.w1.weight", (Transpose(), Expert(0, is_packed_on_disk=False))),
        Located("l.3.experts.1.w1.weight", (Transpose(), Expert(1, is_packed_on_disk=False))),
    ]


def test_parts_are_pieces_of_one_way_and_other_rows_are_ways_of_their_own() -> None:
    rows = [Row("new", "p"), Row("first", "p", Part(0, 2)), Row("second", "p", Part(2, 3)), Row("old", "p", Add(1.0))]
    assert Names.of(rows).candidates("p") == [
        [Located("new")],
        [Located("old", (Add(1.0),))],
        [Located("first", (Part(0, 2),)), Located("second", (Part(2, 3),))],
        [Located("p")],
    ]


def test_what_no_row_names_stands_under_its_own_name() -> None:
    assert Names().candidates("model.norm.weight") == [[Located("model.norm.weight")]]


def test_skips_tell_why() -> None:
    names = Names.of([Skip("rope_freqs.{i}", "computed"), Row("a", "b")])
    assert names.skipped("rope_freqs.3") == "computed"
    assert names.skipped("a") is None
    assert names.rows == (Row("a", "b"),)
