"""The script model behind a real server, and a stub server that misbehaves, once a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.text.tokenizer import Tokenizer
from tests.bench.stub_server import StubServer
from tests.server.real_server import SMALL, RealServer, write_model


@pytest.fixture(scope="session")
def script_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("bench-script"))


@pytest.fixture(scope="session")
def tokenizer(script_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(script_folder)


@pytest.fixture(scope="session")
def served(script_folder: Path) -> Iterator[RealServer]:
    server = RealServer(script_folder, *SMALL)
    try:
        yield server.wait_ready()
    finally:
        server.close()


@pytest.fixture
def stub() -> Iterator[StubServer]:
    server = StubServer()
    try:
        yield server
    finally:
        server.close()
