"""Two servers that the report tests share, once a session; a test leaves them as it found them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reports.scripts import LOOPS, SCRIPTS
from tests.reports.servers import END, SMALL, STOP, Server, serving, set_traps, write_random
from tests.script_model import write

CONTEXT = 1024  # of both
VOCABULARY = 20_000  # tokens of the random model; its head has PADDING rows more
PADDING = 64
SPRUNG = "sprung"  # a file that none of the random model's traps may make
MOST_NEW_TOKENS = 60  # what the random model's makers recommend at most


@pytest.fixture(scope="session")
def scripted_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that answers with SCRIPTS, chosen by the last character of the prompt."""
    folder = tmp_path_factory.mktemp("scripted")
    write(folder, SCRIPTS, loops=LOOPS, context=CONTEXT)
    return folder


@pytest.fixture(scope="session")
def scripted(scripted_model: Path) -> Iterator[Server]:
    """`octavo serve` over it."""
    with serving(scripted_model, *SMALL, "--enable-prompt-tokens-details") as server:
        yield server


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny llama of random float32 weights, with two end tokens, one that begins every prompt, and traps."""
    generation = {"eos_token_id": [END, STOP], "max_new_tokens": MOST_NEW_TOKENS}
    folder = tmp_path_factory.mktemp("random")
    write_random(folder, vocabulary=VOCABULARY, padding=PADDING, context=CONTEXT, generation_config=generation)
    set_traps(folder, folder / SPRUNG)
    return folder


@pytest.fixture(scope="session")
def numbers(random_model: Path) -> Iterator[Server]:
    """`octavo serve` over it, by one who trusts it; a step takes a whole prompt."""
    words = ("--enable-prompt-tokens-details", "--trust-remote-code", "--max-num-batched-tokens", str(CONTEXT))
    with serving(random_model, *SMALL, *words) as server:
        yield server
