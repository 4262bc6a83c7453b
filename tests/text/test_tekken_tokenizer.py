"""tekken.json is read as Mistral's own reader reads it, and a file that is not what it should be is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import CheckpointError, UnsupportedModelError
from octavo.text.tokenizer import Tokenizer
from tests.text import tekken_files


def test_ids_special_tokens_and_bos(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tekken_files.write(tmp_path, "v13"), "mistral")
    assert len(tokenizer) == len(tokenizer.get_vocab()) == 40 + len(tekken_files.contents("v13")["vocab"])
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id, tokenizer.pad_token_id) == (1, 2, 0, 11)
    assert tokenizer.adds_bos
    assert tokenizer.encode("a") == [1, 40 + ord("a")]
    assert tokenizer.encode("[INST]a</s>") == [1, 3, 40 + ord("a"), 2]
    assert tokenizer.all_special_ids == list(range(40))
    assert tokenizer.id_to_token(39) == "<SPECIAL_39>"
    hello = 40 + 256 + 5  # the sixth of the longer ones
    assert tokenizer.encode_ordinary("hello") == [hello]
    text = "hello [INST] é 😀\n\n\tthe weather </s>"
    assert tokenizer.decode(tokenizer.encode_ordinary(text)) == text
    assert tokenizer.special_ids.isdisjoint(tokenizer.encode_ordinary(text))
    assert tokenizer.token_bytes(40 + 0xF0) == b"\xf0"


def test_a_folder_with_nothing_else(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(tekken_files.write(tmp_path, "v7"))
    assert (tokenizer.renderer, tokenizer.format["version"]) == ("mistral", "v7")
    with pytest.raises(CheckpointError, match=r"holds no tokenizer\.json"):
        Tokenizer.load(tmp_path)


def test_a_file_without_a_list_has_the_first_twenty(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tekken_files.write(tmp_path, "v3"), "mistral")
    assert tokenizer.convert_ids_to_tokens(list(range(21))) == [*tekken_files.SPECIAL.split(), "<SPECIAL_20>"]


def _without(key: str) -> dict[str, Any]:
    stored = tekken_files.contents("v7")
    del stored[key]
    return stored


def _changed(**changes: Any) -> dict[str, Any]:
    stored = tekken_files.contents("v7")
    return stored | {"config": stored["config"] | changes}


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ("{", "the file is damaged"),
        ("[]", "the file is damaged"),
        (_without("vocab"), "the file is damaged"),
        (_without("config"), "the file is damaged"),
        (_changed(default_vocab_size=10**6), "the file is damaged"),
        (_changed(pattern=5), "the file is damaged"),
        (_changed(pattern="(("), "the file is damaged"),
    ],
)
def test_a_damaged_file(tmp_path: Path, stored: Any, told: str) -> None:
    (tmp_path / "tekken.json").write_text(stored if isinstance(stored, str) else json.dumps(stored))
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.load(tmp_path, "mistral")
    assert told in str(caught.value.hint)


def test_no_file_and_a_version_that_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds no tekken\.json"):
        Tokenizer.load(tmp_path, "mistral")
    (tmp_path / "tekken.json").write_text(json.dumps(_changed(version="v99")))
    with pytest.raises(UnsupportedModelError, match="v99"):
        Tokenizer.load(tmp_path, "mistral")
