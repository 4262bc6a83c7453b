"""The tiny tokenizer, once a session; a real server, once a file; and one whose figures are watched, once a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.text.tokenizer import Tokenizer
from tests.server.collector import OverHttp
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


MAX_SEQS = 4
QUEUE = 2


@pytest.fixture(scope="session")
def collector() -> Iterator[OverHttp]:
    """Where the watched server sends its traces."""
    found = OverHttp()
    yield found
    found.close()


@pytest.fixture(scope="session")
def metered_server(tmp_path_factory: pytest.TempPathFactory, collector: OverHttp) -> Iterator[RealServer]:
    """A pool of 39 blocks, of which four long answers need more; places for four and a queue of two; a log of JSON lines."""
    words = ("--dtype", "float32", "--max-num-seqs", str(MAX_SEQS), "--max-num-batched-tokens", "32", "--max-model-len", "1024")
    words += ("--num-gpu-blocks-override", "40", "--max-num-queued-reqs", str(QUEUE), "--enable-prompt-tokens-details")
    words += ("--kv-cache-metrics", "--kv-cache-metrics-sample", "1", "--log-format", "json", "--otlp-traces-endpoint", collector.endpoint)
    variables = {"OCTAVO_LOG_STATS_INTERVAL": "0.1", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_BSP_SCHEDULE_DELAY": "50"}
    server = RealServer(write_model(tmp_path_factory.mktemp("metered")), *words, **variables)
    try:
        yield server.wait_ready()
    finally:
        server.close()
