"""The tiny tokenizer, once a session, and a real server, once a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.text.tokenizer import Tokenizer
from tests.server.real_server import SMALL, RealServer, write_model
from tests.unit.frontend.scripted import write_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    return Tokenizer.from_folder(write_tokenizer(folder))


@pytest.fixture(scope="module")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """`octavo serve` over the script model, for tests that leave it as they found it."""
    server = RealServer(write_model(tmp_path_factory.mktemp("script")), *SMALL, "--enable-prompt-tokens-details")
    try:
        yield server.wait_ready()
    finally:
        server.close()
