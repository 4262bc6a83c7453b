"""A folder's tokenizer in GGUF's words gives the same ids; one that GGUF cannot say is refused."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend

from octavo import environment
from octavo.checkpoint import gguf
from octavo.errors import UnsupportedModelError
from octavo.text import folder_tokenizer, gguf_tokenizer, gguf_vocabulary
from tests.loading import tokenizers_made as made


def _same_ids(ours: Backend, theirs: Backend) -> None:
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.text(max_size=40))
    def check(text: str) -> None:
        assert ours.encode(text).ids == theirs.encode(text).ids

    check()


@pytest.mark.parametrize(
    ("tokenizer", "kind"), [(made.byte_level(), "gpt2"), (made.sentencepiece(), "llama"), (made.sentencepiece(False), "llama")]
)
def test_ids_are_the_folders(tmp_path: Path, tokenizer: Backend, kind: str) -> None:
    folder = made.save(tmp_path / "folder", tokenizer)
    found = gguf_vocabulary.metadata(folder, made.VOCABULARY)
    assert found["tokenizer.ggml.model"] == kind
    assert len(found["tokenizer.ggml.tokens"]) == made.VOCABULARY
    assert found["tokenizer.ggml.tokens"][-1] == f"[PAD{made.VOCABULARY - 1}]"
    again = gguf_tokenizer.build(folder, found)
    _same_ids(again.backend, folder_tokenizer.read(folder).backend)
    assert again.special["eos_token"] == "</s>"
    assert again.chat_template == folder_tokenizer.read(folder).chat_template
    assert found["tokenizer.ggml.add_bos_token"] is (kind == "llama")


def test_what_cannot_be_said_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="cannot be said in GGUF"):
        gguf_vocabulary.metadata(made.save(tmp_path / "folder", made.unsayable()), made.VOCABULARY)


def test_several_templates(tmp_path: Path) -> None:
    folder = made.save(tmp_path / "folder", made.byte_level())
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("{{ documents }}")
    found = gguf_vocabulary.metadata(folder, made.VOCABULARY)
    assert found["tokenizer.chat_templates"] == ["rag"]
    assert gguf_tokenizer.build(folder, found).chat_template == folder_tokenizer.read(folder).chat_template


@pytest.mark.model
@pytest.mark.parametrize("name", ["SmolLM2-135M-Instruct", "gemma-3-270m"])
def test_a_real_folder_says_what_llama_cpps_converter_wrote(name: str) -> None:
    folder = (environment.test_models() or Path()) / name
    if not (folder / "tokenizer.json").is_file():
        pytest.skip(f"OCTAVO_TEST_MODELS has no {name}")
    theirs = gguf.read_header(folder / f"{name}.gguf").metadata
    ours = gguf_vocabulary.metadata(folder, len(theirs["tokenizer.ggml.tokens"]))
    for key in ("model", "pre", "tokens", "merges", "bos_token_id", "eos_token_id", "add_bos_token"):
        assert ours.get(f"tokenizer.ggml.{key}") == theirs.get(f"tokenizer.ggml.{key}"), key
    assert ours.get("tokenizer.chat_template") == theirs.get("tokenizer.chat_template")
