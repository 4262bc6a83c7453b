"""Reports of kind I: what the prefix cache saves is work. No answer is another one because of it, and nobody learns of others' prompts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo import LLM, SamplingParams
from tests.reports.servers import CHAT, COMPLETIONS, Server

BLOCK = 32  # tokens
SECTION = "All of the following is common knowledge to everyone who asks. "


def answer(server: Server, path: str = COMPLETIONS, **body: Any) -> tuple[Any, int]:
    """(the choices, prompt tokens that were cached)."""
    fields = {"max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_token_ids": True, "logprobs": True if path == CHAT else 2}
    reply = server.ask(path, **fields, **body)
    return reply["choices"], reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_i3_the_cache_changes_no_greedy_answer(numbers: Server, random_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = SECTION * 5
    found = [answer(numbers, prompt=prompt, cache_salt="i3") for _ in range(5)]
    assert [cached > 0 for _, cached in found] == [False, True, True, True, True]
    assert all(choices == found[0][0] for choices, _ in found)
    monkeypatch.setenv("OCTAVO_ENABLE_V1_MULTIPROCESSING", "0")
    options: dict[str, Any] = {"dtype": "float32", "max_num_seqs": 8, "max_num_batched_tokens": 64, "kv_cache_memory_bytes": 1 << 20}
    with LLM(str(random_model), enable_prefix_caching=False, **options) as uncached:
        params = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
        for _ in range(2):
            (output,) = uncached.generate(prompt, params, use_tqdm=False)
            assert output.outputs[0].token_ids == found[0][0][0]["token_ids"]
            assert not output.num_cached_tokens


@pytest.mark.parametrize("length", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1, 3 * BLOCK + 2])
def test_i4_a_hit_is_whole_blocks_and_leaves_a_token_to_compute(numbers: Server, length: int) -> None:
    prompt = np.random.default_rng(length).integers(300, 20_000, length).tolist()
    first, cached = answer(numbers, prompt=prompt)
    assert cached == 0
    second, cached = answer(numbers, prompt=prompt)
    assert second == first
    assert cached == (length - 1) // BLOCK * BLOCK
    third, cached = answer(numbers, prompt=prompt, cache_salt=f"cold {length}")
    assert (third, cached) == (first, 0)
    longer, cached = answer(numbers, prompt=prompt + first[0]["token_ids"])  # what was generated is found too
    assert cached == (length + 7) // BLOCK * BLOCK
    assert longer == answer(numbers, prompt=prompt + first[0]["token_ids"], cache_salt=f"cold {length}")[0]


def test_i4_an_answer_goes_on_as_it_would_have_if_it_is_begun_again_anywhere(numbers: Server) -> None:
    """The hit ends at every place of a block in turn."""
    prompt = np.random.default_rng(4).integers(300, 20_000, 40).tolist()
    whole = answer(numbers, prompt=prompt)[0][0]["token_ids"]
    for taken in range(1, 8):
        choices, _ = answer(numbers, prompt=prompt + whole[:taken])
        assert choices[0]["token_ids"][: 8 - taken] == whole[taken:]


def test_i5_echo_and_a_continued_message_from_the_cache(numbers: Server) -> None:
    messages = [{"role": "user", "content": SECTION * 3}, {"role": "assistant", "content": "It is known that " * 6}]
    body = {"messages": messages, "continue_final_message": True, "add_generation_prompt": False, "echo": True}
    first, cached = answer(numbers, CHAT, **body)
    assert cached == 0
    second, cached = answer(numbers, CHAT, **body)
    assert cached > 0
    assert second == first
    assert second[0]["message"]["content"].startswith("It is known that ")
    scored = [answer(numbers, prompt=SECTION * 4, echo=True, prompt_logprobs=1) for _ in range(2)]
    assert scored[0][0] == scored[1][0]  # a prompt that is scored is computed
    assert numbers.lives()


def test_i6_a_salt_keeps_a_prompt_to_those_who_know_it(numbers: Server) -> None:
    text = "What only some may know. " * 12
    for path, prompt in ((COMPLETIONS, {"prompt": text}), (CHAT, {"messages": [{"role": "user", "content": text}]})):
        whose = [
            answer(numbers, path, **prompt, **salt) for salt in ({"cache_salt": "a"}, {"cache_salt": "b"}, {}, {"cache_salt": "a"}, {})
        ]
        assert [cached > 0 for _, cached in whose] == [False, False, False, True, True]
        assert all(choices == whose[0][0] for choices, _ in whose)
        assert answer(numbers, path, **prompt, cache_salt="ab")[1] == answer(numbers, path, **prompt, cache_salt="a\0")[1] == 0
