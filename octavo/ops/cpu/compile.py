"""Compile: a kernel is built once a machine; later processes load its machine code from a folder named by all that could change it.

numba's own cache is not used: it does not see an edit in another file, cannot name kernels that close over intrinsics, and unpickles.
Here a kernel is (builder function, parameters); what is kept is the object code and the name of its entry.
"""

import functools
import hashlib
import inspect
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
from numba import _helperlib, cfunc, njit, types
from numba.core import base, intrinsics
from numba.core.runtime import _nrt_python

from octavo import environment
from octavo.ops.cpu import features, pool

BODY = types.void(types.int64, types.int64, types.intp)  # (begin, end, arguments): see pool

# a function that kernels call; compiled into each of them. Division by zero gives inf or nan: nothing in a kernel may raise.
inner = njit(nogil=True, error_model="numpy", boundscheck=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)

_SOURCES = Path(__file__).parent
_TABLES = [_SOURCES.parent / name for name in ("cache_codes.py", "gguf_blocks.py", "weights.py")]  # whose numbers are compiled into kernels
_MAGIC = b"octavo kernel 1\n"
_EXTERNAL = re.compile(r'^declare [^@]*@"?(?!llvm\.)([^"( ]+)|^@"?([^" ]+)"? = external ', re.MULTILINE)
_engines: list[Any] = []  # machine code lives as long as its engine


@dataclass
class Tally:
    """Kernels that this process took from the folder, and those that it had to compile, by their files' names."""

    loaded: list[str] = field(default_factory=list)
    compiled: list[str] = field(default_factory=list)
    compile_s: float = 0.0


tally = Tally()
_planned: Tally | None = None  # while a plan is made, what it has come to


class Kernel:
    """A compiled body. Call it with the number of units, the least units a thread, and the Arguments."""

    __slots__ = ("address", "name")

    def __init__(self, name: str, address: int) -> None:
        self.name = name
        self.address = address

    def __call__(self, count: int, grain: int, arguments: pool.Arguments) -> None:
        if _run is None:
            pool.parallel_for(count, grain, self.address, arguments.address)
        else:
            _run(self, count, grain, arguments)

    def run(self, count: int, grain: int, arguments: pool.Arguments) -> None:
        """Run it, whoever looks on."""
        pool.parallel_for(count, grain, self.address, arguments.address)


Run = Callable[[Kernel, int, int, pool.Arguments], None]
_run: Run | None = None  # who gets calls instead; kernels are called on one thread of a process


@contextmanager
def running(run: Run) -> Iterator[None]:
    """Inside it every call of a kernel goes to `run`, which records or times it and then runs it with `Kernel.run`."""
    global _run
    before, _run = _run, run
    try:
        yield
    finally:
        _run = before


@functools.cache
def cache_folder() -> Path:
    """Where this CPU's kernels of this version of the sources are kept."""
    digest = hashlib.sha256()
    for path in [*sorted(_SOURCES.rglob("*.py")), *_TABLES]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(repr((numba.__version__, llvmlite.__version__, llvm.llvm_version_info, features.target())).encode())
    return environment.cache_root() / "kernels" / digest.hexdigest()[:24]


@contextmanager
def planning() -> Iterator[Tally]:
    """Inside it kernels are named, not made: the tally tells which the folder has and which would be compiled. None can be called."""
    global _planned
    _planned = Tally()
    try:
        yield _planned
    finally:
        _planned = None


def kernel(build: Callable[..., Callable[[int, int, int], None]], *parameters: Any) -> Kernel:
    """The kernel of `build(*parameters)`, which returns a body in numba's Python.

    build: a module-level function (its module and name, with the parameters' text, name the kernel).
    parameters: strings, numbers, booleans and tuples of them. From the folder if it is there, else compiled and left there.
    """
    return _made(build, *parameters) if _planned is None else _plan(_planned, build, *parameters)


@functools.cache
def _made(build: Callable[..., Callable[[int, int, int], None]], *parameters: Any) -> Kernel:
    label, key, path = _named(build, *parameters)
    found = _read(path)
    if found is None:
        started = time.perf_counter()
        found = _compile(build(*parameters), f"{label}_{key}")
        _write(path, *found)
        tally.compiled.append(path.name)
        tally.compile_s += time.perf_counter() - started
    else:
        tally.loaded.append(path.name)
    return Kernel(label, _load(*found))


def _plan(plan: Tally, build: Callable[..., Callable[[int, int, int], None]], *parameters: Any) -> Kernel:
    label, _, path = _named(build, *parameters)
    names = plan.compiled if _read(path) is None else plan.loaded
    if path.name not in names:
        names.append(path.name)
    return Kernel(label, 0)


def _named(build: Callable[..., Callable[[int, int, int], None]], *parameters: Any) -> tuple[str, str, Path]:
    """(label, key, file) of a kernel."""
    label = re.sub(r"[^A-Za-z0-9]+", "_", ".".join([build.__module__.removeprefix("octavo.ops.cpu."), build.__qualname__]))
    source = Path(inspect.getfile(build))  # counts itself when it is not among those that name the folder
    text = b"" if source.is_relative_to(_SOURCES) else source.read_bytes()
    key = hashlib.sha256(repr((build.__module__, build.__qualname__, parameters)).encode() + text).hexdigest()[:16]
    return label, key, cache_folder() / f"{label}-{key}.kernel"


def _compile(body: Callable[[int, int, int], None], name: str) -> tuple[str, str, bytes]:
    """(name of the entry, names it needs from outside, object code)."""
    features.target()  # settles the CPU before numba looks
    body.__name__ = body.__qualname__ = name
    compiled = cfunc(BODY, nogil=True, error_model="numpy", boundscheck=False)(body)
    text = compiled._library.get_llvm_str()
    needed = sorted({function or variable for function, variable in _EXTERNAL.findall(text)})
    return compiled.native_name, " ".join(needed), bytes(compiled._library._get_compiled_object())


@functools.cache
def _define_symbols() -> None:
    """Give LLVM the functions of numba that its wrapper around each body names; it calls them if a body raised, which none does."""
    base._load_global_helpers()
    for name in intrinsics.INTR_MATH:
        llvm.add_symbol(name, _helperlib.c_helpers[name])
    for name, address in _nrt_python.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def _load(symbol: str, needed: str, code: bytes) -> int:
    """Map object code into this process: the entry's address. An engine each, so that equal names cannot meet."""
    _define_symbols()
    features.level()  # initializes LLVM's native target
    name, flags = features.target()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=name, features=flags, opt=3, jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    # one name that is missing leaves every other at address 0, without a word
    if missing := [name for name in needed.split() if not llvm.address_of_symbol(name)]:
        raise RuntimeError(f"kernel {symbol} needs functions that this process lacks: {', '.join(missing)}")
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(symbol)
    if not address:
        raise RuntimeError(f"a compiled kernel lacks its entry {symbol}")
    _engines.append(engine)
    return address


def _read(path: Path) -> tuple[str, str, bytes] | None:
    """What `_write` left, or None if there is nothing whole."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, _, rest = data.removeprefix(_MAGIC).partition(b"\n")
    if not data.startswith(_MAGIC) or hashlib.sha256(rest).hexdigest().encode() != digest:
        return None
    symbol, needed, code = rest.split(b"\n", 2)
    return symbol.decode(), needed.decode(), code


def _write(path: Path, symbol: str, needed: str, code: bytes) -> None:
    """Keep a kernel; processes that do so at once each leave a whole file. A folder that cannot be written costs only time."""
    rest = f"{symbol}\n{needed}\n".encode() + code
    data = _MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        return
