"""octavo cache: what is kept is listed with its size, removed by its name, and left alone while it is in use or not ours."""

import fcntl
import io
import json
import os
from pathlib import Path

import pytest

from octavo.checkpoint import catalog
from octavo.cli import cache, kept, main
from octavo.config.in_use import Hold

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with one of each kind: 12 bytes of a catalog model, 34 of kernels, 5 of a batch, 6 of a download, 700 in the hub's cache."""
    monkeypatch.setenv("OCTAVO_CACHE_ROOT", str(tmp_path / "octavo"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for name, size in (
        ("octavo/models/SmolLM2-135M-Instruct.Q4_1.gguf", 12),
        ("octavo/models/.smollm2-x/part", 6),
        ("octavo/models/.smollm2.lock", 0),
        ("octavo/kernels/aaaa/a.kernel", 30),
        ("octavo/kernels/bbbb/b.kernel", 4),
        ("octavo/batches/x.part", 5),
        (f"hub/models--org--name/blobs/{'e' * 40}", 700),
        ("hub/datasets--org--data/blobs/x", 9),
        ("hub/datasets--org--data/refs/main", 0),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    snapshot = tmp_path / "hub" / "models--org--name" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to(f"../../blobs/{'e' * 40}")
    (tmp_path / "hub/models--org--name/refs").mkdir()
    (tmp_path / "hub/models--org--name/refs/main").write_text(COMMIT)
    return tmp_path


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    capsys.readouterr()
    assert main.main(["cache", "ls", "--json"]) == 0
    return {each["name"]: each for each in json.loads(capsys.readouterr().out)}


NAMES = ["batches/x.part", "downloads/.smollm2-x", "kernels/aaaa", "kernels/bbbb", "org/name", "smollm2"]


def test_the_list(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys)
    assert sorted(found) == NAMES
    assert [found[name]["size_bytes"] for name in NAMES] == [5, 6, 30, 4, 700, 12]
    assert not any(each["in_use"] for each in found.values())
    assert main.main(["cache", "ls"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in (*NAMES, "NAME", "LAST USED", "in all", str(root / "octavo" / "kernels" / "aaaa")))


def test_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OCTAVO_CACHE_ROOT", str(tmp_path / "none"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    assert listed(capsys) == {}


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (["smollm2"], NAMES[:-1]),
        (["org/name", "kernels/aaaa"], [*NAMES[:2], "kernels/bbbb", "smollm2"]),
        (["kernels", "batches", "downloads"], ["org/name", "smollm2"]),
    ],
)
def test_removing(root: Path, capsys: pytest.CaptureFixture[str], names: list[str], left: list[str]) -> None:
    assert main.main(["cache", "rm", *names, "--dry-run"]) == 0
    assert sorted(listed(capsys)) == NAMES
    assert main.main(["cache", "rm", *names, "--yes"]) == 0
    assert sorted(listed(capsys)) == left
    assert (root / "hub/datasets--org--data/blobs/x").exists()
    assert (root / "hub/models--org--name").exists() == ("org/name" in left)
    assert catalog.folder().is_dir()


@pytest.mark.parametrize("name", ["..", "../hub", "kernels/../..", "/", "", "org", "kernels/", "models/../kernels", "SmolLM2*", "."])
def test_a_name_is_never_a_path(root: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    before = sorted(root.rglob("*"))
    assert main.main(["cache", "rm", "--yes", "--", name]) == 1
    assert "nothing is kept under the name" in capsys.readouterr().err
    assert sorted(root.rglob("*")) == before


def test_links_lead_nobody_astray(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a link in the cache leads to is not octavo's."""
    own = root / "mine"
    own.mkdir()
    (own / "precious").write_text("x" * 5000)
    (root / "octavo/kernels/aaaa/inner").symlink_to(own)
    (root / "octavo/kernels/cccc").symlink_to(own)
    (root / "octavo/models/other.gguf").symlink_to(own / "precious")
    found = listed(capsys)
    assert int(str(found["other.gguf"]["size_bytes"])) < 5000
    assert main.main(["cache", "rm", "kernels", "other.gguf", "--yes"]) == 0
    assert (own / "precious").read_text() == "x" * 5000
    assert list((root / "octavo/kernels").iterdir()) == []


def test_a_cache_that_leads_elsewhere_is_left_alone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = root / "outside"
    (root / "octavo/kernels").rename(outside)
    (root / "octavo/kernels").symlink_to(outside)
    assert main.main(["cache", "rm", "kernels", "--yes"]) == 1
    assert "does not lie in" in capsys.readouterr().err
    assert (outside / "aaaa" / "a.kernel").exists()


@pytest.mark.parametrize(
    ("used", "busy"),
    [
        ("octavo/models/SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2"),
        (f"hub/models--org--name/snapshots/{COMMIT}", "org/name"),
        (f"hub/models--org--name/snapshots/{COMMIT}/model.safetensors", "org/name"),
        ("octavo/kernels/bbbb", "kernels/bbbb"),
    ],
)
def test_what_an_instance_uses_stays(root: Path, capsys: pytest.CaptureFixture[str], used: str, busy: str) -> None:
    instance = Hold()
    instance.add([root / used, root / "none"])
    assert [name for name, each in listed(capsys).items() if each["in_use"]] == [busy]
    assert main.main(["cache", "rm", *NAMES, "--yes"]) == 1
    assert f"{busy} is in use" in capsys.readouterr().err
    assert sorted(listed(capsys)) == [busy]
    instance.release()
    assert main.main(["cache", "rm", busy, "--yes"]) == 0
    assert listed(capsys) == {}


@pytest.mark.parametrize(("locked", "busy"), [("batches/x.part", "batches/x.part"), ("models/.smollm2.lock", "downloads/.smollm2-x")])
def test_what_is_being_written_stays(root: Path, capsys: pytest.CaptureFixture[str], locked: str, busy: str) -> None:
    with (root / "octavo" / locked).open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert main.main(["cache", "rm", busy, "--yes"]) == 1
        assert busy in listed(capsys)
    assert main.main(["cache", "rm", busy, "--yes"]) == 0


def test_somebody_is_asked(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "r") as terminal, os.fdopen(ours, "w") as typing:
        monkeypatch.setattr("sys.stdin", terminal)
        typing.write("n\ny\n")
        typing.flush()
        assert main.main(["cache", "rm", "smollm2"]) == 1
        assert "smollm2" in listed(capsys)
        assert main.main(["cache", "rm", "smollm2"]) == 0
        assert "smollm2" not in listed(capsys)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main.main(["cache", "rm", "org/name"]) == 1
    assert "pass --yes" in capsys.readouterr().err


def test_what_cannot_be_removed_is_said(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(kept.shutil, "rmtree", refuse)
    assert cache.remove_all(cache.choose(kept.find(), ["kernels", "smollm2"])) == 1
    err = capsys.readouterr().err
    assert err.count("Permission denied") == 2
    assert sorted(listed(capsys)) == NAMES[:-1]
