"""A real server for fuzzers: short contexts and few choices, so that a request that is granted everything ends soon."""

from pathlib import Path

from tests.server.real_server import SMALL, RealServer, write_model

LIMITS = ("--max-model-len", "192", "--override-generation-config", '{"max_tokens": 24}')


def start(folder: Path, *words: str) -> RealServer:
    """Not yet ready."""
    return RealServer(write_model(folder), *SMALL, *LIMITS, *words, OCTAVO_MAX_N_SEQUENCES="4")
