"""GGUF headers: what a right file says is read, and no wrong one does anything but raise CheckpointError."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.checkpoint import gguf
from octavo.errors import CheckpointError
from tests.loading.gguf_bytes import build, string, value, write

F32_4 = ((4,), 0, bytes(16))


def test_every_kind_of_value_and_nested_arrays(tmp_path: Path) -> None:
    metadata = {f"scalar.{kind}": value(what, kind) for kind, what in [(0, 255), (1, -1), (2, 65535), (3, -2), (4, 7), (5, -7), (6, 0.5)]}
    metadata |= {"bool": True, "text": "Grüße", "u64": value(1 << 40, 10), "i64": value(-(1 << 40), 11), "f64": value(0.1, 12)}
    metadata |= {"ints": value([1, -2, 3], 5), "bools": value([1, 0, 1], 7), "texts": ["a", "", "日本"], "nested": [[1, 2], [3]]}
    header = gguf.read_header(write(tmp_path / "a.gguf", metadata, {"t": F32_4, "u": ((2, 64), 8, bytes(2 * 68))}))
    read = header.metadata
    assert [read[f"scalar.{kind}"] for kind in range(7)] == [255, -1, 65535, -2, 7, -7, 0.5]
    assert (read["bool"], read["text"], read["u64"], read["i64"], read["f64"]) == (True, "Grüße", 1 << 40, -(1 << 40), 0.1)
    assert read["ints"].dtype == np.int32
    assert read["ints"].tolist() == [1, -2, 3]
    assert read["bools"].tolist() == [True, False, True]
    assert read["texts"] == ["a", "", "日本"]
    assert [part.tolist() for part in read["nested"]] == [[1, 2], [3]]
    assert header.tensors["u"].shape == (2, 64)
    assert (header.tensors["u"].type, header.tensors["u"].size_bytes) == ("Q8_0", 136)
    assert header.tensors["u"].offset % 32 == 0
    assert header.tensors["u"].offset == header.tensors["t"].offset + 32


def test_version_2_and_another_alignment(tmp_path: Path) -> None:
    header = gguf.read_header(write(tmp_path / "a.gguf", {"general.alignment": 64}, {"t": F32_4}, version=2, alignment=64))
    assert (header.version, header.alignment, header.tensors["t"].offset % 64) == (2, 64, 0)


def test_tokens_that_are_no_utf8_stay_distinct(tmp_path: Path) -> None:
    tokens = struct.pack("<IIQ", 9, 8, 2) + string(b"\xff") + string(b"\xfe")
    first, second = gguf.read_header(write(tmp_path / "a.gguf", {"tokens": tokens})).metadata["tokens"]
    assert first != second
    assert first.encode("utf-8", "surrogateescape") == b"\xff"


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = write(tmp_path / "a.gguf", {"k": "one"})
    assert gguf.read_header(file).metadata == {"k": "one"}
    write(file, {"k": "another"})
    assert gguf.read_header(file).metadata == {"k": "another"}


def _bad(change: str) -> bytes:
    """Files that are wrong in one way each."""
    right = build({"k": "v"}, {"t": F32_4})
    huge = struct.pack("<Q", 1 << 60)
    return {
        "empty": b"",
        "no magic": b"ABCD" + right[4:],
        "version 1": right[:4] + struct.pack("<I", 1) + right[8:],
        "big-endian": right[:4] + struct.pack(">I", 3) + right[8:],
        "tensor count": right[:8] + huge + right[16:],
        "pair count": right[:16] + huge + right[24:],
        "string length": right[:24] + huge + right[32:],
        "array length": build({"k": struct.pack("<IIQ", 9, 4, 1 << 60)}),
        "strings": build({"k": struct.pack("<IIQ", 9, 8, 1 << 60)}),
        "arrays": build({"k": struct.pack("<IIQ", 9, 9, 1 << 60)}),
        "deep": build({"k": struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 20 + struct.pack("<IQ", 4, 0)}),
        "value type": build({"k": struct.pack("<I", 13) + bytes(8)}),
        "array type": build({"k": struct.pack("<IIQ", 9, 13, 0)}),
        "alignment": build({"general.alignment": 24}, {"t": F32_4}),
        "alignment 0": build({"general.alignment": 0}, {"t": F32_4}),
        "alignment text": build({"general.alignment": "32"}, {"t": F32_4}),
        "format": build({}, {"t": ((4,), 99, bytes(16))}),
        "row": build({}, {"t": ((4,), 2, bytes(18))}),
        "shape": build({}, {"t": ((1 << 62, 1 << 62), 0, bytes(16))}),
        "axes": build({}, {"t": ((1, 1, 1, 1, 4), 0, bytes(16))}),
        "cut short": right[:-1],
        "overlap": build({}, {"t": ((8,), 0, bytes(0)), "u": ((8,), 0, bytes(32))}),
        "twice": build({}, {"t": F32_4}).replace(struct.pack("<QQ", 1, 0), struct.pack("<QQ", 2, 0)),
    }[change]


CHANGES = """empty
no magic|version 1|big-endian|tensor count|pair count|string length|array length|strings|arrays|deep|value type|array type
alignment|alignment 0|alignment text|format|row|shape|axes|cut short|overlap|twice""".replace("\n", "|").split("|")


@pytest.mark.parametrize("change", CHANGES)
def test_wrong_files(change: str, tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(_bad(change))
    with pytest.raises(CheckpointError):
        gguf.read_header(file)


def test_a_truncated_file_names_its_tensors(tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(build({}, {"first": F32_4, "second": F32_4})[:-8])
    with pytest.raises(CheckpointError, match="ends before second"):
        gguf.read_header(file)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(cut=st.integers(0, 400), position=st.integers(0, 400), byte=st.integers(0, 255))
def test_no_damage_does_more_than_raise(tmp_path: Path, cut: int, position: int, byte: int) -> None:
    """One byte changed, or the end cut off: it is read, or it is a CheckpointError; never anything else, and at once."""
    raw = bytearray(build({"a": "text", "n": [1, 2, 3], "s": ["x", "yy"], "f": 1.5}, {"t": F32_4, "u": ((2, 32), 8, bytes(68))}))
    raw[position % len(raw)] = byte
    file = tmp_path / "a.gguf"
    file.write_bytes(bytes(raw[: len(raw) - cut % len(raw)]) if cut % 2 else bytes(raw))
    gguf._read_header.cache_clear()
    try:
        gguf.read_header(file)
    except CheckpointError:
        return


@pytest.mark.oracle
def test_the_table_of_formats_is_ggmls() -> None:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    assert {int(kind): (kind.name, *GGML_QUANT_SIZES[kind]) for kind in GGMLQuantizationType}.items() <= gguf.TYPES.items()


@pytest.mark.oracle
@pytest.mark.model
def test_a_real_file_reads_as_with_the_gguf_package(smollm2_gguf: Path) -> None:
    from gguf import GGUFReader

    header, reader = gguf.read_header(smollm2_gguf), GGUFReader(smollm2_gguf)
    assert {t.name: (t.type, t.offset, t.size_bytes, t.shape) for t in header.tensors.values()} == {
        t.name: (t.tensor_type.name, t.data_offset, t.n_bytes, tuple(reversed(t.shape.tolist()))) for t in reader.tensors
    }
    for key, field in reader.fields.items():
        if not key.startswith("GGUF."):
            ours = header.metadata[key]
            if isinstance(ours, list | np.ndarray):
                assert len(ours) == len(field.data)
                ends = [*range(min(50, len(ours))), *range(max(0, len(ours) - 50), len(ours))]
                assert [ours[index] for index in ends] == [field.contents(index) for index in ends], key
            else:
                assert ours == field.contents(), key
