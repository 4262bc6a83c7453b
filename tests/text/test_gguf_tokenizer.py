"""Tokenizers built from GGUF files give the token ids that llama.cpp's fixtures and the models' own tokenizer.json give."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo import environment
from octavo.errors import UnsupportedModelError
from octavo.text.tokenizer import Tokenizer

SEPARATOR = "\n__ggml_vocab_test__\n"
PAIRED = (
    *("bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe"),
    *("llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder"),
)


def _pairs(folder: Path, name: str) -> list[tuple[str, list[int]]]:
    base = folder / f"ggml-vocab-{name}.gguf"
    texts = Path(f"{base}.inp").read_bytes().decode("utf-8").split(SEPARATOR)
    ids = [[int(number) for number in line.split()] for line in Path(f"{base}.out").read_text().splitlines()]
    return list(zip(texts, ids))


@pytest.mark.oracle
@pytest.mark.parametrize("name", PAIRED)
def test_ids_equal_the_fixture(llama_cpp_models: Path, name: str) -> None:
    tokenizer = Tokenizer.from_gguf(llama_cpp_models / f"ggml-vocab-{name}.gguf")
    pairs = _pairs(llama_cpp_models, name)
    assert len(pairs) >= 46
    for text, ids in pairs:
        assert tokenizer.encode_ordinary(text) == ids, text


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["aquila", "baichuan", "gpt-neox"])
def test_vocabularies_without_a_pair_give_the_text_back(llama_cpp_models: Path, name: str) -> None:
    tokenizer = Tokenizer.from_gguf(llama_cpp_models / f"ggml-vocab-{name}.gguf")
    text = "Hello, wörld! 12 漢字 🙂\n\tx = y"
    assert tokenizer.decode(tokenizer.encode_ordinary(text)) == text


@pytest.mark.oracle
def test_a_kind_that_cannot_be_built_is_named(llama_cpp_models: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="'t5'"):
        Tokenizer.from_gguf(llama_cpp_models / "ggml-vocab-nomic-bert-moe.gguf")


@pytest.mark.oracle
def test_ends_of_a_text(llama_cpp_models: Path) -> None:
    llama = Tokenizer.from_gguf(llama_cpp_models / "ggml-vocab-llama-spm.gguf")
    assert (llama.bos_token_id, llama.eos_token_id, llama.adds_bos) == (1, 2, True)
    assert llama.encode("Hello") == [1, *llama.encode("Hello", add_special_tokens=False)]
    bert = Tokenizer.from_gguf(llama_cpp_models / "ggml-vocab-bert-bge.gguf")
    assert bert.convert_ids_to_tokens(bert.encode("hello world")) == ["[CLS]", "hello", "world", "[SEP]"]
    command = Tokenizer.from_gguf(llama_cpp_models / "ggml-vocab-command-r.gguf")
    assert isinstance(command.chat_template, dict)
    assert set(command.chat_template) == {"default", "tool_use", "rag"}


@pytest.mark.model
@pytest.mark.parametrize("name", ["SmolLM2-135M-Instruct", "Qwen2.5-Coder-0.5B-Instruct", "gemma-3-270m"])
def test_a_file_gives_what_its_folder_gives(name: str) -> None:
    models = environment.test_models()
    if models is None or not (models / name / "tokenizer.json").is_file():
        pytest.skip(f"OCTAVO_TEST_MODELS has no {name}")
    folder, file = Tokenizer.from_folder(models / name), Tokenizer.from_gguf(next((models / name).glob("*.gguf")))
    assert file.eos_token_id == folder.eos_token_id
    assert file.adds_bos == folder.adds_bos

    @settings(max_examples=100, deadline=None, derandomize=True)
    @given(st.text(max_size=60))
    def check(text: str) -> None:
        assert file.encode(text) == folder.encode(text)

    check()
    for text in ("  leading", "a  b\n\n\nc", "<|im_end|><eos><table>", "don't WE'LL 1234"):
        assert file.encode(text) == folder.encode(text)
