"""The pieces of a detokenizer, joined, are the text of all tokens, and no piece holds a torn character."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.text.detokenizer import TORN, Detokenizer
from octavo.text.tokenizer import Tokenizer

TEXTS = ("Hello world", " leading", "🙂👩‍👩‍👧‍👦 漢字 é", "a<|im_end|>b", "\n\n\tx  ", "ẞ\u0301\u200d\ufe0f", "")


def stream(tokenizer: Tokenizer, ids: list[int], prompt: list[int] | None = None, **options: bool) -> list[str]:
    detokenizer = Detokenizer(tokenizer, prompt or [], **options)
    pieces = [*(detokenizer.add(index) for index in ids), detokenizer.flush()]
    assert detokenizer.text == "".join(pieces)
    return pieces


@pytest.mark.model
@settings(max_examples=150, deadline=None, derandomize=True)
@given(text=st.text(st.characters(categories=["L", "M", "N", "P", "S", "Z"]), max_size=40))  # some bytes of others have no token
def test_any_text_comes_back_whole(smollm2_tokenizer: Tokenizer, text: str) -> None:
    ids = smollm2_tokenizer.encode_ordinary(text)
    pieces = stream(smollm2_tokenizer, ids)
    assert "".join(pieces) == smollm2_tokenizer.decode(ids) == text
    if TORN not in text:
        assert not any(TORN in piece for piece in pieces)


@pytest.mark.model
@settings(max_examples=150, deadline=None, derandomize=True)
@given(ids=st.lists(st.integers(0, 49_200), max_size=30), skip=st.booleans())
def test_any_tokens_give_what_the_library_gives(smollm2_tokenizer: Tokenizer, ids: list[int], skip: bool) -> None:
    known = [index for index in ids if index < 49_152]
    want = smollm2_tokenizer.backend.decode(known, skip_special_tokens=skip)
    assert "".join(stream(smollm2_tokenizer, ids, skip_special_tokens=skip)) == want
    assert smollm2_tokenizer.decode(ids, skip_special_tokens=skip) == want


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["llama-spm", "phi-3", "gemma-4", "llama-bpe", "deepseek-llm", "command-r", "bert-bge", "baichuan"])
def test_other_vocabularies(llama_cpp_models: Path, name: str) -> None:
    tokenizer = Tokenizer.from_gguf(llama_cpp_models / f"ggml-vocab-{name}.gguf")
    for text in TEXTS:
        for ids in (tokenizer.encode(text), tokenizer.encode_ordinary(text)):
            for skip in (True, False):
                want = tokenizer.backend.decode(ids, skip_special_tokens=skip)
                assert "".join(stream(tokenizer, ids, skip_special_tokens=skip)) == want
                assert tokenizer.decode(ids, skip_special_tokens=skip) == want


@pytest.mark.oracle
def test_byte_fallback(llama_cpp_models: Path) -> None:
    tokenizer = Tokenizer.from_gguf(llama_cpp_models / "ggml-vocab-llama-spm.gguf")
    a = tokenizer.token_to_id("▁a")
    emoji = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in "🫠".encode()]
    assert stream(tokenizer, [a, *emoji, a]) == ["a", "", "", "", "🫠", " a", ""]
    # whole characters survive a torn neighbour, and a torn one is one mark
    assert "".join(stream(tokenizer, [a, *emoji, *emoji[:3]])) == "a🫠\ufffd" == tokenizer.decode([a, *emoji, *emoji[:3]])
    assert "".join(stream(tokenizer, [*emoji[:2], a])) == "\ufffd a"


@pytest.mark.oracle
def test_first_space(llama_cpp_models: Path) -> None:
    tokenizer = Tokenizer.from_gguf(llama_cpp_models / "ggml-vocab-llama-spm.gguf")
    ids = [tokenizer.token_to_id(token) for token in ("▁", "▁a", "▁b")]
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids) == " a b"
    prompt = tokenizer.encode("The end")
    assert "".join(stream(tokenizer, ids, prompt=prompt)) == "  a b"
    assert tokenizer.decode([*prompt, *ids], skip_special_tokens=True) == "The end  a b"


@pytest.mark.model
def test_a_character_that_the_prompt_tore_is_completed(smollm2_tokenizer: Tokenizer) -> None:
    ids = smollm2_tokenizer.encode_ordinary("x🫠")
    assert "".join(stream(smollm2_tokenizer, ids[-1:], prompt=ids[:-1])) == "🫠"


@pytest.mark.model
def test_special_tokens_can_be_kept(smollm2_tokenizer: Tokenizer) -> None:
    ids = smollm2_tokenizer.encode("a<|im_end|>b")
    assert "".join(stream(smollm2_tokenizer, ids)) == "ab"
    assert "".join(stream(smollm2_tokenizer, ids, skip_special_tokens=False)) == "a<|im_end|>b"


@pytest.mark.oracle
def test_spaces_between_special_tokens(llama_cpp_models: Path) -> None:
    tokenizer = Tokenizer.from_gguf(llama_cpp_models / "ggml-vocab-bert-bge.gguf")
    ids = [tokenizer.token_to_id(token) for token in ("[CLS]", "[CLS]", "hello", "world", "[SEP]", "[SEP]")]
    spaced = {"skip_special_tokens": False, "spaces_between_special_tokens": True}
    joined = {"skip_special_tokens": False, "spaces_between_special_tokens": False}
    assert "".join(stream(tokenizer, ids, **spaced)) == tokenizer.decode(ids, **spaced) == "[CLS] [CLS] hello world [SEP] [SEP]"
    assert "".join(stream(tokenizer, ids, **joined)) == tokenizer.decode(ids, **joined) == "[CLS][CLS] hello world [SEP][SEP]"


@pytest.mark.model
def test_a_step_costs_the_same_however_long_the_text_is(smollm2_tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(smollm2_tokenizer)
    calls = []
    known = smollm2_tokenizer.token_bytes
    detokenizer._form._bytes_of = lambda index: calls.append(index) or known(index)  # type: ignore[union-attr,method-assign]
    for _ in range(5000):
        detokenizer.add(28)
    assert len(calls) == 5000
