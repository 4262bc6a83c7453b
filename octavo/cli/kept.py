"""Kept: what octavo has left on disk and could make or fetch again: models, compiled kernels, batches that were cut off."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo import environment
from octavo.checkpoint import catalog
from octavo.config.in_use import held
from octavo.errors import OctavoError


@dataclass(frozen=True, slots=True)
class Kept:
    """name: what it is removed by. used_s: when it was read last, as far as the system tells. busy: why it cannot be removed now."""

    name: str
    kind: str  # model, hub model, download, kernels, batch
    path: Path
    size_bytes: int
    used_s: float
    busy: str | None = None

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "kind": self.kind,
            "path": str(self.path),
            "size_bytes": self.size_bytes,
            "last_used": self.used_s,
            "in_use": self.busy is not None,
        }


def find() -> list[Kept]:
    """Everything, by kind and name."""
    used = held()
    found = [*_models(used), *_hub(used), *_kernels(used), *_batches()]
    return sorted(found, key=lambda kept: (kept.kind, kept.name))


def remove(kept: Kept) -> None:
    """Take it away. Raises OctavoError if it is in use, lies elsewhere, or cannot be removed."""
    if kept.busy is not None:
        raise OctavoError(f"{kept.name} is in use: {kept.busy}", "stop what uses it first")
    try:
        if kept.kind == "hub model":
            _remove_from_hub(kept)
            return
        root = environment.cache_root()
        if not kept.path.parent.resolve().is_relative_to(root.resolve()):
            raise OctavoError(f"{kept.path} does not lie in {root}", "remove it by hand if it is not needed")
        if kept.path.is_dir() and not kept.path.is_symlink():
            shutil.rmtree(kept.path)  # links in it are removed, and what they lead to is left alone
        else:
            kept.path.unlink()
    except OSError as error:
        raise OctavoError(f"{kept.path} cannot be removed: {error.strerror}", "look at its owner and its rights") from None


def _models(used: set[Path]) -> Iterator[Kept]:
    """The catalog's models, and what is left of downloads that were cut off."""
    known = {model.file_name: model.name for model in catalog.CATALOG.values()}
    for path in _entries(catalog.folder()):
        if path.name.startswith("."):
            name = next((name for name in known.values() if path.name.startswith(f".{name}-")), None)
            if name is not None:
                busy = "it is being fetched" if _is_locked(path.with_name(f".{name}.lock")) else None
                yield _kept(f"downloads/{path.name}", "download", path, busy)
        elif path.suffix == ".gguf":
            yield _kept(known.get(path.name, path.name), "model", path, _busy(path, used))


def _hub(used: set[Path]) -> Iterator[Kept]:
    """Models in the Hugging Face cache, which other programs use too."""
    if not environment.hub_cache().is_dir():
        return
    from huggingface_hub import scan_cache_dir

    for repo in scan_cache_dir(environment.hub_cache()).repos:
        if repo.repo_type == "model":
            yield Kept(repo.repo_id, "hub model", repo.repo_path, repo.size_on_disk, repo.last_accessed, _busy(repo.repo_path, used))


def _remove_from_hub(kept: Kept) -> None:
    from huggingface_hub import scan_cache_dir

    info = scan_cache_dir(environment.hub_cache())
    commits = [each.commit_hash for repo in info.repos if repo.repo_path == kept.path for each in repo.revisions]
    if commits:
        info.delete_revisions(*commits).execute()
    elif kept.path.parent.resolve() == environment.hub_cache().resolve():  # a download that never came to a revision
        shutil.rmtree(kept.path)


def _kernels(used: set[Path]) -> Iterator[Kept]:
    """A folder for each version of octavo's kernels and each kind of CPU."""
    for path in _entries(environment.cache_root() / "kernels"):
        if path.is_dir():
            yield _kept(f"kernels/{path.name}", "kernels", path, _busy(path, used))


def _batches() -> Iterator[Kept]:
    for path in _entries(environment.cache_root() / "batches"):
        if path.is_file():
            yield _kept(f"batches/{path.name}", "batch", path, "run-batch is writing it" if _is_locked(path) else None)


def _kept(name: str, kind: str, path: Path, busy: str | None) -> Kept:
    size, used_s = 0, 0.0
    for each in _files(path):
        try:
            status = each.lstat()
        except FileNotFoundError:
            continue
        size += status.st_size
        used_s = max(used_s, status.st_atime, status.st_mtime)
    return Kept(name, kind, path, size, used_s, busy)


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir() or path.is_symlink():
        yield path
        return
    yield from (Path(parent) / name for parent, _, names in os.walk(path) for name in names)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _busy(path: Path, used: set[Path]) -> str | None:
    real = path.resolve()
    return "a running process has it open" if any(file.is_relative_to(real) for file in used) else None


def _is_locked(path: Path) -> bool:
    try:
        import fcntl

        with path.open("rb") as file:
            return _refuses(lambda: fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB))
    except (OSError, ImportError):
        return False


def _refuses(lock: Callable[[], None]) -> bool:
    try:
        lock()
    except BlockingIOError:
        return True
    return False
