"""The script model says exactly its pieces: read by our tokenizer and detokenizer, and by transformers."""

from pathlib import Path

import pytest

from octavo.text.detokenizer import Detokenizer
from octavo.text.stop_strings import StopStrings
from octavo.text.tokenizer import Tokenizer
from tests.script_model import EOS, write

SCRIPTS: dict[str, list[bytes | str]] = {
    "p": ["plain", " wor", "ds,", " no more"],
    "t": [b"a \xf0\x9f", b"\x98\x80 b", b" \xf0\x9f\x91", b"\xa9\xe2\x80", b"\x8d\xf0\x9f\x92\xbb", b" \xe4\xb8", b"\xad."],
    "x": ["<to", "ol_", "call>{}", "</tool", "_ca", "ll>"],
    "b": [b"bad \xff\xfe", b" \xe4\xba", b"!ok"],
}
TEXTS = {
    "p": "plain words, no more",
    "t": "a 😀 b 👩\u200d💻 中.",
    "x": "<tool_call>{}</tool_call>",
    "b": "bad \ufffd\ufffd \ufffd!ok",
}


@pytest.fixture(scope="module", params=[False, True], ids=["numbered", "byte_level"])
def scripted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, dict[str, list[int]], bool]:
    folder: Path = tmp_path_factory.mktemp("script")
    said = write(folder, SCRIPTS, byte_level=request.param)
    return Tokenizer.from_folder(folder), said, request.param


Scripted = tuple[Tokenizer, dict[str, list[int]], bool]


def test_a_byte_level_script_has_bytes_of_its_own_and_a_numbered_one_a_window(scripted: Scripted) -> None:
    tokenizer, _, byte_level = scripted
    assert (tokenizer.spelling is not None) is byte_level


@pytest.mark.parametrize("key", SCRIPTS)
def test_the_tokens_of_a_script_are_its_text(scripted: Scripted, key: str) -> None:
    tokenizer, said, _ = scripted
    assert tokenizer.decode(said[key]) == TEXTS[key]
    assert len(set(said[key])) == len(SCRIPTS[key])


@pytest.mark.parametrize("key", SCRIPTS)
def test_the_text_comes_piece_by_piece_and_never_torn(scripted: Scripted, key: str) -> None:
    tokenizer, said, _ = scripted
    detokenizer = Detokenizer(tokenizer, tokenizer.encode(f"say {key}"))
    pieces = [detokenizer.add(token) for token in [*said[key], EOS]] + [detokenizer.flush()]
    assert "".join(pieces) == TEXTS[key]
    if key != "b":
        assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_is_given_with_the_token_that_completes_it(scripted: Scripted) -> None:
    tokenizer, said, byte_level = scripted
    detokenizer = Detokenizer(tokenizer, tokenizer.encode("t"))
    pieces = [detokenizer.add(token) for token in said["t"]]
    if byte_level:
        assert pieces == ["a ", "😀 b", " ", "👩", "\u200d💻", " ", "中."]
    else:  # a window gives nothing of a token that is torn anywhere
        assert pieces == ["", "a 😀 b", "", "", " 👩\u200d💻", "", " 中."]


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(("stop", "at", "text"), [("</tool_call>", 6, "<tool_call>{}"), ("l_", 2, "<too"), ("call>", 3, "<tool_")])
def test_stop_strings_are_found_over_token_borders(scripted: Scripted, include: bool, stop: str, at: int, text: str) -> None:
    tokenizer, said, _ = scripted
    detokenizer, stops = Detokenizer(tokenizer), StopStrings([stop], include_in_output=include)
    given = ""
    for token in said["x"]:
        given += stops.add(detokenizer.add(token))
        assert not stops.match or given == text + stop * include
        if stops.match is not None:
            break
    assert stops.match is not None
    assert (stops.match.stop, stops.match.num_tokens) == (stop, at)


def test_a_prompt_ends_in_the_letter_that_chooses_the_script(scripted: Scripted) -> None:
    tokenizer, _, _ = scripted
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "anything x"}], add_generation_prompt=True)
    assert chat[-1] == ord("x") == tokenizer.encode("x")[0]
    assert tokenizer.eos_token_id == EOS == tokenizer.encode("<|end|>")[0]


def test_what_an_ordinary_byte_level_tokenizer_cannot_say_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a token already"):
        write(tmp_path, {"a": ["twice", "twice"]}, byte_level=True)


@pytest.mark.oracle
def test_transformers_says_the_same(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    said = write(tmp_path, SCRIPTS)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32), AutoTokenizer.from_pretrained(tmp_path)
    for key, tokens in said.items():
        prompt = torch.tensor([tokenizer.encode(f"say {key}")])
        output = model.generate(prompt, do_sample=False, max_new_tokens=20, pad_token_id=EOS)[0, prompt.shape[1] :]
        assert output.tolist() == [*tokens, EOS]
