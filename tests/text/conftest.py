"""Fixtures of other projects: vocabularies with texts and their token ids, and chat templates, from one source archive, fetched once."""

import hashlib
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from octavo import environment
from octavo.text.tokenizer import Tokenizer

PACKAGE = "llama-cpp-python==0.3.36"
ARCHIVE = "llama_cpp_python-0.3.36.tar.gz"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
INSIDE = "/vendor/llama.cpp/models/"


def _archive() -> Path:
    given = environment.test_fixtures()
    if given is not None and (given / ARCHIVE).is_file():
        return given / ARCHIVE
    folder = environment.cache_root() / "fixtures"
    if not (folder / ARCHIVE).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--quiet", "--dest", str(folder)]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, PACKAGE], check=True)
    return folder / ARCHIVE


@pytest.fixture(scope="session")
def llama_cpp_models() -> Path:
    """The folder of vocabularies (ggml-vocab-*.gguf, .inp, .out) and templates (templates/*.jinja)."""
    folder = environment.cache_root() / "fixtures" / SHA256[:16]
    if folder.is_dir():
        return folder
    archive = _archive()
    with archive.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SHA256, f"{archive} is not the archive it should be"
    partial = folder.with_name(f"{folder.name}.partial-{hashlib.sha256(str(sys.argv).encode()).hexdigest()[:8]}")
    shutil.rmtree(partial, ignore_errors=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            _, found, name = member.name.partition(INSIDE)
            if found and member.isfile():
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
                source = tar.extractfile(member)
                assert source is not None
                (partial / name).write_bytes(source.read())
    partial.replace(folder)
    return folder


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2: Path) -> Tokenizer:
    return Tokenizer.load(smollm2)
