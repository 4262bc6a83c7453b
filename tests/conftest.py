"""Fixtures that several rooms share: the small real model, fetched once, and a log that no test leaves configured."""

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "5000")  # as in our own processes; read when torch loads

import pytest

from octavo import environment

# What nohup, or a shell's background, ignores, the processes that tests start do not ignore, nor a test that sends Ctrl-C to itself.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


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


_NAMES = ("octavo", "octavo.server.access_log", "py.warnings", "uvicorn", "uvicorn.error", "uvicorn.access")
_LOGGERS = [logging.getLogger(name) for name in _NAMES]
_AS_FOUND = [(logger, list(logger.handlers), logger.level, logger.propagate) for logger in _LOGGERS]


@pytest.fixture(autouse=True)
def log_as_found() -> Iterator[None]:
    """What a test lets a command or a server configure, in this process, is undone: the next test may count what is logged."""
    yield
    logging.captureWarnings(False)
    for logger, handlers, level, propagates in _AS_FOUND:
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagates
