"""The kernel cache: a second process loads what the first compiled; an edited source or another CPU never meets a stale kernel."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.ops.cpu import compile, features

_SCRIPT = """
import importlib.util, json, sys
from octavo.ops.cpu import compile, pool

spec = importlib.util.spec_from_file_location("adder", sys.argv[1])
adder = importlib.util.module_from_spec(spec)
spec.loader.exec_module(adder)
compiled, original = [], compile._compile
compile._compile = lambda *arguments: (compiled.append(arguments), original(*arguments))[1]
print(json.dumps({"values": [adder.run(shift) for shift in (1, 2)], "compiled": len(compiled)}))
"""
_ADDER = """
import ctypes
from octavo.ops.cpu import compile, pool, vectors

def build(shift):
    int64s = vectors.int64s

    @compile.inner
    def shifted(i):
        return i * FACTOR + shift

    def units(begin, end, arguments):
        out = int64s(int64s(arguments)[0])
        for i in range(begin, end):
            out[i] = shifted(i)
        for i in range(max(end, 1000)):
            int64s(arguments)[1 + i % 300] = 0

    return units

def run(shift):
    out, arguments = (ctypes.c_int64 * 4)(), pool.Arguments(301)
    arguments.set(ctypes.addressof(out), *[1] * 300)
    compile.kernel(build, shift)(4, 4, arguments)
    return list(out)
"""


def start(folder: Path, factor: int, **variables: str) -> "subprocess.CompletedProcess[str]":
    """A fresh process that keeps its kernels in `folder`."""
    (folder / "adder.py").write_text(_ADDER.replace("FACTOR", str(factor)))
    command = [sys.executable, "-B", "-c", _SCRIPT, str(folder / "adder.py")]
    environment = os.environ | {"OCTAVO_CACHE_ROOT": str(folder / "cache")} | variables
    return subprocess.run(command, env=environment, cwd=Path(__file__).parents[2], capture_output=True, text=True)


def run(folder: Path, factor: int, **variables: str) -> dict:
    """What it says."""
    done = start(folder, factor, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_kernel_is_compiled_once_a_machine_and_again_after_an_edit(tmp_path: Path) -> None:
    assert run(tmp_path, 3) == {"compiled": 2, "values": [[3 * i + shift for i in range(4)] for shift in (1, 2)]}
    assert run(tmp_path, 3) == {"compiled": 0, "values": [[3 * i + shift for i in range(4)] for shift in (1, 2)]}
    assert run(tmp_path, 5) == {"compiled": 2, "values": [[5 * i + shift for i in range(4)] for shift in (1, 2)]}


def test_a_copied_cache_serves_where_none_may_be_compiled(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    first = run(tmp_path, 3)
    shutil.copytree(tmp_path / "cache", tmp_path / "there" / "cache")
    assert run(tmp_path / "there", 3, OCTAVO_FORCE_AOT_LOAD="1") == {**first, "compiled": 0}
    done = start(tmp_path / "there", 5, OCTAVO_FORCE_AOT_LOAD="1")
    assert "is not in" in done.stderr
    assert "octavo.errors.ConfigError" in done.stderr
    assert run(tmp_path, 5)["compiled"] == 2


def test_what_is_kept_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    path, kept = tmp_path / "folder" / "a.kernel", ("entry", "memset expf", b"\n\0code\n")
    compile._write(path, *kept)
    assert compile._read(path) == kept
    assert list(path.parent.iterdir()) == [path]
    whole = path.read_bytes()
    for torn in (whole[:-1], whole[:20], b"", whole[:-1] + b"x", b"other" + whole):
        path.write_bytes(torn)
        assert compile._read(path) is None
    compile._write(path / "below a file" / "b.kernel", *kept)  # cannot be written: that costs only time
    assert compile._read(tmp_path / "missing") is None


def test_a_missing_function_is_an_error_not_address_zero() -> None:
    with pytest.raises(RuntimeError, match="no_such_function"):
        compile._load("entry", "memset no_such_function", b"")


def test_the_folder_is_named_by_the_sources_and_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE_ROOT", str(tmp_path))
    here = compile.cache_folder.__wrapped__()
    monkeypatch.setattr(features, "target", lambda: ("another", ""))
    elsewhere = compile.cache_folder.__wrapped__()
    copied = tmp_path / "sources"
    copied.mkdir()
    for path in compile._SOURCES.glob("*.py"):
        (copied / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(compile, "_SOURCES", copied)
    assert compile.cache_folder.__wrapped__() == elsewhere
    (copied / "vectors.py").write_bytes((copied / "vectors.py").read_bytes() + b"#")
    assert len({here, elsewhere, compile.cache_folder.__wrapped__()}) == 3
