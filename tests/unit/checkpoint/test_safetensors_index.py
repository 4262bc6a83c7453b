"""safetensors headers: one file, shards with and without an index, and every way in which they can be wrong."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from octavo.checkpoint import safetensors_index
from octavo.errors import CheckpointError


def raw(header: Any, body: int) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(body)


def tensor(shape: list[int], begin: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def shard(folder: Path, number: int, count: int, name: str) -> str:
    file = f"model-{number:05}-of-{count:05}.safetensors"
    (folder / file).write_bytes(raw({name: tensor([2], 0, 8)}, 8))
    return file


def write_index(folder: Path, weight_map: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_one_file(tmp_path: Path) -> None:
    header = {"__metadata__": {"format": "pt"}, "a": tensor([2, 3], 0, 24), "b": tensor([4], 24, 32, "BF16"), "c": tensor([], 32, 36)}
    (tmp_path / "model.safetensors").write_bytes(raw(header, 36))
    entries = safetensors_index.read(tmp_path)
    start = 8 + len(json.dumps(header))
    assert [(e.name, e.offset - start, e.size_bytes, e.number_format, e.shape) for e in entries.values()] == [
        ("a", 0, 24, "F32", (2, 3)),
        ("b", 24, 8, "BF16", (4,)),
        ("c", 32, 4, "F32", ()),
    ]


@pytest.mark.oracle
@pytest.mark.model
def test_a_real_file_reads_as_with_the_safetensors_library(smollm2: Path) -> None:
    from safetensors import safe_open

    if smollm2.is_file():
        pytest.skip("OCTAVO_TEST_MODELS has no folder of this model")
    entries = safetensors_index.read(smollm2)
    with safe_open(smollm2 / "model.safetensors", "pt") as file:
        assert set(file.keys()) == set(entries)
        assert all(tuple(file.get_slice(name).get_shape()) == entry.shape for name, entry in entries.items())


def test_shards_with_an_index(tmp_path: Path) -> None:
    write_index(tmp_path, {"a": shard(tmp_path, 1, 2, "a"), "b": shard(tmp_path, 2, 2, "b")})
    assert {name: entry.file.name for name, entry in safetensors_index.read(tmp_path).items()} == {
        "a": "model-00001-of-00002.safetensors",
        "b": "model-00002-of-00002.safetensors",
    }


def test_shards_without_an_index_and_a_consolidated_file_beside(tmp_path: Path) -> None:
    for number, name in ((1, "a"), (2, "b")):
        shard(tmp_path, number, 2, name)
    (tmp_path / "consolidated.safetensors").write_bytes(raw({"wq": tensor([2], 0, 8)}, 8))
    assert set(safetensors_index.read(tmp_path)) == {"a", "b"}


def test_a_consolidated_file_alone(tmp_path: Path) -> None:
    (tmp_path / "consolidated.safetensors").write_bytes(raw({"wq": tensor([2], 0, 8)}, 8))
    assert set(safetensors_index.read(tmp_path)) == {"wq"}


@pytest.mark.parametrize("with_index", [True, False])
def test_missing_shards_are_all_named(with_index: bool, tmp_path: Path) -> None:
    file = shard(tmp_path, 1, 3, "a")
    if with_index:
        write_index(tmp_path, {"a": file, "b": "model-00002-of-00003.safetensors", "c": "model-00003-of-00003.safetensors"})
    with pytest.raises(CheckpointError, match=r"(?s)model-00002-of-00003.*model-00003-of-00003.*missing"):
        safetensors_index.read(tmp_path)


def test_all_faults_are_listed(tmp_path: Path) -> None:
    first, second = shard(tmp_path, 1, 3, "a"), shard(tmp_path, 2, 3, "b")
    (tmp_path / second).write_bytes((tmp_path / second).read_bytes()[:-1])
    write_index(tmp_path, {"a": first, "b": second, "c": "model-00003-of-00003.safetensors"})
    with pytest.raises(CheckpointError) as caught:
        safetensors_index.read(tmp_path)
    assert "model-00003-of-00003.safetensors is missing" in caught.value.fact
    assert "model-00002-of-00003.safetensors is cut short" in caught.value.fact


def test_a_name_in_two_shards_and_a_name_in_no_shard(tmp_path: Path) -> None:
    write_index(tmp_path, {"a": shard(tmp_path, 1, 2, "a"), "b": shard(tmp_path, 2, 2, "a")})
    with pytest.raises(CheckpointError, match="tensor a stands in"):
        safetensors_index.read(tmp_path)
    write_index(tmp_path, {"a": shard(tmp_path, 1, 2, "a"), "b": shard(tmp_path, 2, 2, "c")})
    with pytest.raises(CheckpointError, match="says that b is in"):
        safetensors_index.read(tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no safetensors file"),
        (struct.pack("<Q", 1 << 60), "no safetensors file"),
        (struct.pack("<Q", 100) + b"{}", "cut short"),
        (raw(b"{", 0), "cannot be read"),
        (raw(b"[1]", 0), "no table"),
        (raw(b"[" * 100_000, 0), "cannot be read"),
        (raw({"a": tensor([2], 0, 8)}, 7), "cut short"),
        (raw({"a": tensor([3], 0, 8)}, 8), "cannot have 8 bytes"),
        (raw({"a": tensor([2], 8, 0)}, 8), "malformed"),
        (raw({"a": tensor([-2], 0, 8)}, 8), "malformed"),
        (raw({"a": tensor([2.0], 0, 8)}, 8), "malformed"),  # type: ignore[list-item]
        (raw({"a": {"dtype": "F32"}}, 8), "malformed"),
        (raw({"a": 5}, 8), "malformed"),
        (raw({"a": tensor([2], 0, 8, "F99")}, 8), "unknown number format"),
        (raw({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, 12), "overlap"),
        (raw(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8), "twice"),
    ],
)
def test_wrong_files(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=says):
        safetensors_index.read(tmp_path)


@pytest.mark.parametrize("weight_map", [None, {"a": "../other.safetensors"}, {"a": 5}, ["a"]])
def test_wrong_index(weight_map: Any, tmp_path: Path) -> None:
    write_index(tmp_path, weight_map)
    with pytest.raises(CheckpointError, match=r"index\.json"):
        safetensors_index.read(tmp_path)


def test_pickles_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(CheckpointError, match="pickle"):
        safetensors_index.read(tmp_path)


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no \.safetensors file"):
        safetensors_index.read(tmp_path)
