"""The tiny tokenizer, once a session."""

from pathlib import Path

import pytest

from octavo.text.tokenizer import Tokenizer
from tests.unit.frontend.scripted import write_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    return Tokenizer.from_folder(write_tokenizer(folder))
