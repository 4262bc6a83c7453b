"""Fixtures that several rooms share: the small real model, fetched once."""

import os
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "5000")  # as in our own processes; read when torch loads

import pytest

from octavo import environment


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct, from OCTAVO_TEST_MODELS, else by the catalog (fetched once a machine)."""
    folder = environment.test_models()
    if folder is not None and (found := sorted((folder / "SmolLM2-135M-Instruct").glob("*.gguf"))):
        return found[0]
    from octavo.checkpoint import catalog

    return catalog.fetch("smollm2")


@pytest.fixture(scope="session")
def smollm2(smollm2_gguf: Path) -> Path:
    """SmolLM2-135M-Instruct as an HF folder where there is one, else its GGUF file."""
    folder = environment.test_models()
    if folder is not None and (folder / "SmolLM2-135M-Instruct" / "config.json").exists():
        return folder / "SmolLM2-135M-Instruct"
    return smollm2_gguf
