"""The Hugging Face hub: a model's files through huggingface_hub, in its cache, with a remedy for each way in which that can fail."""

import fnmatch
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo import environment
from octavo.checkpoint.progress import LINE_EVERY_S, Silent, is_terminal
from octavo.errors import CheckpointError, ModelNotFoundError, OctavoError

# what a folder of safetensors needs; subfolders hold other formats of the same weights
ALLOW = ["*.safetensors", "*.json", "*.jinja", "tokenizer.model", "*.tiktoken", "merges.txt", "vocab.txt"]
CONFIG = ["config.json", "generation_config.json"]
IGNORE = ["*/*", "consolidated*", "adapter_*"]
LIST_TIMEOUT_S = 10.0
TRY_TIMEOUT_S = 3.0
TOKENIZER = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "*.jinja", "chat_template.json", "tekken.json"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """repo: org/name. quantization: what a GGUF file's name must contain (Q4_K_M); file: its name in the repository.

    ignore: patterns of files that are not wanted, whatever else is.
    """

    repo: str
    revision: str | None = None
    quantization: str | None = None
    file: str | None = None
    ignore: tuple[str, ...] = ()

    @property
    def wants_gguf(self) -> bool:
        return self.quantization is not None or self.file is not None


def fetch(
    wanted: Wanted,
    *,
    download_dir: str | Path | None = None,
    token: str | bool | None = None,
    offline: bool = False,
    progress: type[Silent],
) -> Path:
    """The local folder, or the .gguf file, of a model on the hub; downloads what the cache lacks.

    Offline, or when the hub cannot be reached, the cache alone is asked. Raises ModelNotFoundError or CheckpointError with the remedy.
    """
    if offline:
        return _from_cache(wanted, download_dir, _is_offline(wanted, download_dir))
    try:
        names = _list(wanted, token, LIST_TIMEOUT_S)
        allow = _choose(wanted, names)
        folder = _download(wanted, allow, download_dir, token, progress)
    except OctavoError:
        raise
    except Exception as error:  # the hub's client and the HTTP library below it have no base class of their own
        problem = _explain(error, wanted, token)
        if problem is None:
            raise
        if not isinstance(problem, _Unreachable):
            raise problem from None
        return _from_cache(wanted, download_dir, ModelNotFoundError(problem.fact, problem.hint))
    return folder / first_parts(allow)[0] if allow is not ALLOW else folder


def fetch_config(repo: str, *, download_dir: str | Path | None = None, token: str | bool | None = None, offline: bool = False) -> Path:
    """A folder with the config.json of a repository, and nothing else of it if it was not there. Raises ModelNotFoundError."""
    from huggingface_hub import snapshot_download

    where = None if download_dir is None else str(download_dir)
    try:
        folder = Path(snapshot_download(repo, cache_dir=where, token=token, allow_patterns=CONFIG, local_files_only=offline))
    except Exception as error:  # as in fetch
        problem = _is_offline(Wanted(repo), download_dir) if offline else _explain(error, Wanted(repo), token)
        if problem is None:
            raise
        raise problem from None
    return folder


def try_fetch(wanted: Wanted, *, offline: bool, progress: type[Silent]) -> Path | None:
    """The model's folder if the hub's cache has it or the hub gives it; None, soon, if not. For models that are to be had elsewhere too."""
    try:
        return _from_cache(wanted, None, ModelNotFoundError(wanted.repo))
    except OctavoError:
        if offline:
            return None
    try:
        _list(wanted, None, TRY_TIMEOUT_S)
    except Exception:  # whatever it is, the other way is tried next and has messages of its own
        return None
    try:
        return fetch(wanted, progress=progress)
    except OctavoError:
        return None


def first_parts(names: list[str]) -> list[str]:
    """GGUF files by name, a model that is split into parts once, by its first part."""
    return [name for name in names if (part := re.search(r"-(\d{5})-of-\d{5}\.gguf$", name)) is None or part[1] == "00001"]


def _list(wanted: Wanted, token: str | bool | None, timeout_s: float) -> list[str]:
    """The names of the repository's files. One try."""
    from huggingface_hub import HfApi

    info = HfApi(token=token).model_info(wanted.repo, revision=wanted.revision, timeout=timeout_s)
    return sorted(file.rfilename for file in info.siblings or [])


def _choose(wanted: Wanted, names: list[str]) -> list[str]:
    """Which files to fetch: ALLOW for a checkpoint, else the parts of one GGUF model."""
    names = [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in wanted.ignore)]
    files = [name for name in names if name.endswith(".gguf")]
    if not wanted.wants_gguf:
        if any(name.endswith(".safetensors") and "/" not in name for name in names):
            return ALLOW
        if len(first_parts(files)) != 1:
            raise _no_weights(wanted.repo, names)
        return files
    picked = [name for name in files if _is_picked(name, wanted)]
    models = first_parts(picked)
    if len(models) == 1:
        return picked
    listed = ", ".join(first_parts(files)) or "none"
    what = wanted.file or wanted.quantization
    raise ModelNotFoundError(f"{what} names {len(models)} of the GGUF files of {wanted.repo}", f"its files: {listed}")


def _is_picked(name: str, wanted: Wanted) -> bool:
    """By its name, all parts of it; by its quantization as a word of the name, whatever its case."""
    if wanted.file is not None:
        stem = re.sub(r"-\d{5}-of-\d{5}\.gguf$", "", wanted.file)
        return name == wanted.file or (stem != wanted.file and re.fullmatch(re.escape(stem) + r"-\d{5}-of-\d{5}\.gguf", name) is not None)
    return re.search(rf"(?<![a-z0-9]){re.escape((wanted.quantization or '').lower())}(?![a-z0-9_])", name.lower()) is not None


def _no_weights(repo: str, names: list[str]) -> OctavoError:
    files = first_parts([name for name in names if name.endswith(".gguf")])
    if files:
        return ModelNotFoundError(
            f"{repo} holds {len(files)} GGUF files and no safetensors",
            f"pick one, as {repo}:Q4_K_M or {repo}/{files[0]}; they are {', '.join(files)}",
        )
    if any(name.endswith((".bin", ".pt", ".pth")) for name in names):
        return CheckpointError(
            f"{repo} has its weights as pickles only, which can run code, and which octavo never opens",
            "take a repository that has safetensors or GGUF files, or convert this one where you trust it",
        )
    return CheckpointError(f"{repo} has no safetensors and no GGUF files", "it is no language model, or its weights are elsewhere")


def _download(wanted: Wanted, allow: list[str], download_dir: str | Path | None, token: str | bool | None, progress: type[Silent]) -> Path:
    from huggingface_hub import snapshot_download

    options: dict[str, Any] = {"ignore_patterns": [*IGNORE, *wanted.ignore]} if allow is ALLOW else {}
    bars = _bars(progress)
    if bars is not None:
        options["tqdm_class"] = bars
    where = None if download_dir is None else str(download_dir)
    return Path(snapshot_download(wanted.repo, revision=wanted.revision, cache_dir=where, token=token, allow_patterns=allow, **options))


def _bars(progress: type[Silent]) -> type | None:
    """The library's own bars on a terminal; elsewhere a line per ten seconds, or nothing."""
    if progress is not Silent and is_terminal():
        return None
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

    class Lines(tqdm):  # type: ignore[misc]
        """The library's progress, said in lines."""

        _last_line_s = time.monotonic()

        def display(self, *_arguments: Any, **_options: Any) -> None:
            now = time.monotonic()
            if progress is Silent or self.unit != "B" or not self.total or now - Lines._last_line_s < LINE_EVERY_S:
                return
            Lines._last_line_s = now
            print(f"downloading: {self.n / 1e6:.0f} of {self.total / 1e6:.0f} MB", file=sys.stderr, flush=True)

    return Lines


def _from_cache(wanted: Wanted, download_dir: str | Path | None, otherwise: OctavoError) -> Path:
    """What the cache has of the model; `otherwise` is raised if that is not enough."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    where = None if download_dir is None else str(download_dir)
    try:
        # nothing is asked for, so the folder is returned whatever is in it: what matters is looked at here
        folder = Path(snapshot_download(wanted.repo, revision=wanted.revision, cache_dir=where, local_files_only=True, allow_patterns=[]))
    except (LocalEntryNotFoundError, HFValidationError):
        raise otherwise from None
    return pick(folder, wanted, otherwise)


def pick(folder: Path, wanted: Wanted, otherwise: OctavoError) -> Path:
    """What was wanted among the files of a folder: itself, or one GGUF file; `otherwise` is raised if it is not there."""
    files = [str(file.relative_to(folder)) for file in sorted(folder.rglob("*.gguf"))]
    if not wanted.wants_gguf and (folder / "config.json").is_file() and any(folder.glob("*.safetensors")):
        return folder
    models = first_parts([name for name in files if not wanted.wants_gguf or _is_picked(name, wanted)])
    if len(models) == 1:
        return folder / models[0]
    if models:
        raise ModelNotFoundError(f"the cache holds {len(models)} GGUF files of {wanted.repo}", f"pick one: {', '.join(models)}")
    raise otherwise


def _is_offline(wanted: Wanted, download_dir: str | Path | None) -> ModelNotFoundError:
    return ModelNotFoundError(
        f"{wanted.repo} is not in {download_dir or environment.hub_cache()}, and HF_HUB_OFFLINE forbids fetching it",
        f"fetch it where there is a network with `hf download {wanted.repo}`, or unset HF_HUB_OFFLINE",
    )


def fetch_tokenizer(repo: str, *, offline: bool) -> Path:
    """The local folder with the tokenizer's files of a model on the hub; its weights stay there. Raises ModelNotFoundError."""
    from huggingface_hub import snapshot_download

    missing = ModelNotFoundError(f"{repo} has no tokenizer.json in {environment.hub_cache()}", "unset HF_HUB_OFFLINE, or name a folder")
    try:
        folder = Path(snapshot_download(repo, allow_patterns=TOKENIZER, local_files_only=offline))
    except Exception as error:  # as in fetch()
        problem = missing if offline else _explain(error, Wanted(repo), None)
        if problem is None:
            raise
        raise problem from None
    if not (folder / "tokenizer.json").is_file():
        raise (
            missing
            if offline
            else ModelNotFoundError(f"{repo} has no tokenizer.json", "name a repository, folder or .gguf file that has one")
        )
    return folder


class _Unreachable(ModelNotFoundError):
    """The hub does not answer: the cache may have the model still."""


def _explain(error: Exception, wanted: Wanted, token: str | bool | None) -> OctavoError | None:
    """What went wrong, and the remedy; None for what is no fault of the hub, the network or the name."""
    from huggingface_hub import constants, errors, get_token

    repo, page = wanted.repo, f"{constants.ENDPOINT}/{wanted.repo}"
    has_token = (token or get_token()) is not None
    if isinstance(error, errors.GatedRepoError):
        remedy = "log in as an account that was granted access" if has_token else "set HF_TOKEN (or run `hf auth login`)"
        return ModelNotFoundError(f"{repo} is gated: its owner asks for agreement", f"accept the licence at {page}, then {remedy}")
    if isinstance(error, errors.RevisionNotFoundError):
        return ModelNotFoundError(f"{repo} has no revision {wanted.revision!r}", f"its branches and tags are at {page}/tree/main")
    if isinstance(error, errors.RepositoryNotFoundError):
        private = "" if has_token else "; if it is private, set HF_TOKEN"
        return ModelNotFoundError(
            f"there is no model {repo} on the hub, or it is private", f"check the spelling{private}; a local folder may be written ./{repo}"
        )
    if isinstance(error, errors.HFValidationError):
        return ModelNotFoundError(f"{repo} is no hub id: {error}", "a hub id is org/name")
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        remedy = "the token in HF_TOKEN is not valid or may not read it: make a new one" if has_token else "set HF_TOKEN"
        return ModelNotFoundError(f"the hub refuses {repo} ({status})", f"{remedy}; accept its licence at {page} if it has one")
    if status == 404:
        return ModelNotFoundError(f"the hub lacks a file of {repo} ({status})", f"look at {page}")
    if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "huggingface_hub"):
        kind = f"HTTP {status}" if status else type(error).__name__
        return _Unreachable(
            f"the hub at {constants.ENDPOINT} does not give {repo} ({kind}), and {environment.hub_cache()} does not hold it",
            "check the network, or HF_ENDPOINT for a mirror; a folder or a .gguf file needs no hub",
        )
    return None
