"""LLM over the real engine and the script model: every parameter, seen in the answer. The model's table is the oracle of all numbers."""

import math
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file

from octavo import LLM, SamplingParams
from octavo.errors import ConfigError, EngineDeadError, RequestError
from octavo.protocol.outputs import LogprobsOnePosition, RequestOutput
from octavo.protocol.sampling_params import BeamSearchParams, RepetitionDetectionParams
from octavo.text.tokenizer import Tokenizer
from tests.script_model import EOS, write
from tests.tolerances import ATOL

SCRIPTS: dict[str, list[bytes | str]] = {
    "p": ["plain", " wor", "ds,", " no more"],
    "t": [b"a \xf0\x9f", b"\x98\x80 b", b" \xf0\x9f\x91", b"\xa9\xe2\x80", b"\x8d\xf0\x9f\x92\xbb", b" \xe4\xb8", b"\xad."],
    "x": ["<to", "ol_", "call>{}", "</tool", "_ca", "ll>", " tail"],
    "o": [" tick", " tock", " tack"],
    "e": [b"torn \xf0\x9f"],
}
TEXTS = {
    "p": "plain words, no more",
    "t": "a 😀 b 👩\u200d💻 中.",
    "x": "<tool_call>{}</tool_call> tail",
    "e": "torn \ufffd",
}
CONTEXT = 512
CHUNK = 64  # tokens of the largest step: longer prompts are computed in chunks
BLOCK = 32

Table = npt.NDArray[np.float64]


class Scripted:
    """An LLM that says the scripts, their token ids, and its table: the log-probabilities of what follows each token."""

    def __init__(self, folder: Path) -> None:
        self.said = write(folder, SCRIPTS, loops="o", context=CONTEXT)
        self.llm = LLM(
            str(folder), dtype="float32", max_num_seqs=8, max_num_batched_tokens=CHUNK, block_size=BLOCK, kv_cache_memory_bytes=1 << 20
        )
        tensors = load_file(folder / "model.safetensors")
        logits = tensors["model.embed_tokens.weight"].astype(np.float64) @ tensors["lm_head.weight"].T.astype(np.float64)
        top = logits.max(axis=1, keepdims=True)
        self.table: Table = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))

    def answers(self, prompts: Any, **params: Any) -> list[RequestOutput]:
        return self.llm.generate(prompts, SamplingParams(**{"temperature": 0.0, "max_tokens": 64, **params}), use_tqdm=False)

    def answer(self, prompt: Any, **params: Any) -> RequestOutput:
        return self.answers(prompt, **params)[0]

    def gauges(self) -> list[float | None]:
        found = {metric.name: metric.value for metric in self.llm.get_metrics()}
        return [found[f"vllm:{name}"] for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")]


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    scripted = Scripted(tmp_path_factory.mktemp("script"))
    yield scripted
    assert scripted.gauges() == [0, 0, 0]
    scripted.llm.close()
    with pytest.raises(EngineDeadError):
        scripted.answer("say p")


def essence(output: RequestOutput) -> Any:
    """All of an answer but when it came and from which cache."""
    return (output.prompt, output.prompt_token_ids, output.prompt_logprobs, output.outputs, output.finished, output.error)


def long_prompt(key: str, length: int = 3 * CHUNK + 7) -> str:
    return ("the quick brown fox jumps over the lazy dog " * 20)[: length - 1] + key


# --- prompts


@pytest.mark.parametrize("key", TEXTS)
def test_a_script_is_said_word_for_word(scripted: Scripted, key: str) -> None:
    output = scripted.answer(f"say {key}")
    (only,) = output.outputs
    assert only.text == TEXTS[key]
    assert only.token_ids == [*scripted.said[key], EOS]
    assert (only.finish_reason, only.stop_reason) == ("stop", None)
    assert (output.prompt, output.prompt_token_ids) == (f"say {key}", list(f"say {key}".encode()))
    assert (output.finished, output.error, output.prompt_logprobs, only.logprobs) == (True, None, None, None)


def test_answers_come_in_the_order_of_the_prompts_in_every_form(scripted: Scripted) -> None:
    ids = scripted.llm.get_tokenizer().encode("ids x")
    prompts = ["say p", {"prompt": "say t"}, {"prompt_token_ids": ids}, ids, long_prompt("e"), "say p"]
    texts = [output.outputs[0].text for output in scripted.answers(prompts)]
    assert texts == [TEXTS[key] for key in "ptxxep"]
    assert scripted.answer(ids).prompt is None
    assert scripted.answers([]) == []


def test_more_prompts_than_rows_are_all_answered(scripted: Scripted) -> None:
    keys = [list(TEXTS)[i % 4] for i in range(40)]
    outputs = scripted.answers([f"{i} {key}" for i, key in enumerate(keys)])
    assert [o.outputs[0].text for o in outputs] == [TEXTS[key] for key in keys]


def test_each_prompt_may_have_parameters_of_its_own(scripted: Scripted) -> None:
    params = [SamplingParams(temperature=0, max_tokens=n) for n in (1, 2, 3)]
    outputs = scripted.llm.generate(["p", "p", "p"], params, use_tqdm=False)
    assert [o.outputs[0].token_ids for o in outputs] == [scripted.said["p"][:n] for n in (1, 2, 3)]
    assert [o.outputs[0].finish_reason for o in outputs] == ["length"] * 3


def test_chat_applies_the_template(scripted: Scripted) -> None:
    params = SamplingParams(temperature=0, max_tokens=64)
    one = [{"role": "system", "content": "be x"}, {"role": "user", "content": "say p"}]
    other = [{"role": "user", "content": [{"type": "text", "text": "now t"}]}]
    (output,) = scripted.llm.chat(one, params, use_tqdm=False)
    assert (output.prompt, output.outputs[0].text) == ("[system]be x[user]say pp", TEXTS["p"])
    both = scripted.llm.chat([one, other], params, use_tqdm=False)
    assert [o.outputs[0].text for o in both] == [TEXTS["p"], TEXTS["t"]]
    (bare,) = scripted.llm.chat(one, params, use_tqdm=False, add_generation_prompt=False)
    assert bare.prompt == "[system]be x[user]say p"


def test_prompts_can_be_started_now_and_awaited_later(scripted: Scripted) -> None:
    params = SamplingParams(temperature=0, max_tokens=64)
    names = scripted.llm.enqueue(["say p", "say x"], params) + scripted.llm.enqueue("say t", params)
    assert scripted.answer("say e").outputs[0].text == TEXTS["e"]
    outputs = scripted.llm.wait_for_completion(use_tqdm=False)
    assert [o.request_id for o in outputs] == names
    assert [o.outputs[0].text for o in outputs] == [TEXTS[key] for key in "pxt"]
    assert scripted.llm.wait_for_completion(use_tqdm=False) == []


@pytest.mark.parametrize("keep", [1, 5, CHUNK + 3])
def test_a_truncated_prompt_keeps_its_end(scripted: Scripted, keep: int) -> None:
    prompt = long_prompt("t")
    output = scripted.answer(prompt, truncate_prompt_tokens=keep)
    assert output.prompt_token_ids == list(prompt.encode()[-keep:])
    assert output.outputs[0].text == TEXTS["t"]


def test_a_prompt_may_be_cut_to_what_leaves_room_for_the_answer(scripted: Scripted) -> None:
    output = scripted.answer(long_prompt("t", CONTEXT + 200), truncate_prompt_tokens=-1, max_tokens=10)
    assert output.prompt_token_ids is not None
    assert len(output.prompt_token_ids) == CONTEXT - 10
    assert output.outputs[0].text == TEXTS["t"]


# --- ends


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(
    ("key", "stop", "before", "num_tokens"),
    [
        ("x", "</tool_call>", "<tool_call>{}", 6),
        ("x", "l_", "<too", 2),
        ("x", ["nowhere", "ll>{", "l>{"], "<tool_ca", 3),
        ("x", ["{}</", "{}<"], "<tool_call>", 4),
        ("t", "😀", "a ", 2),
        ("t", "b 👩", "a 😀 ", 5),
        ("t", "\u200d", "a 😀 b 👩", 5),
        ("t", ".", "a 😀 b 👩\u200d💻 中", 7),
    ],
)
def test_a_stop_string_ends_it_wherever_the_borders_lie(
    scripted: Scripted, key: str, stop: Any, before: str, num_tokens: int, include: bool
) -> None:
    (only,) = scripted.answer(f"say {key}", stop=stop, include_stop_str_in_output=include, logprobs=0).outputs
    assert only.finish_reason == "stop"
    assert only.stop_reason == (stop if isinstance(stop, str) else {"ll>{": "ll>{", "{}</": "{}<"}.get(stop[-1], stop[1]))
    assert only.text == before + (str(only.stop_reason) if include else "")
    assert only.token_ids == scripted.said[key][:num_tokens]
    assert only.logprobs is not None
    assert len(only.logprobs) == num_tokens


def test_half_a_stop_string_at_the_end_is_told(scripted: Scripted) -> None:
    for stop in (" tail!", "> tail and", "tail\n"):
        assert scripted.answer("say x", stop=stop).outputs[0].text == TEXTS["x"]
    assert scripted.answer("say x", stop="_call>!", max_tokens=6).outputs[0].text == "<tool_call>{}</tool_call>"


def test_a_stop_string_does_not_count_before_min_tokens(scripted: Scripted) -> None:
    early = scripted.answer("say o", stop=" tock", max_tokens=30).outputs[0]
    late = scripted.answer("say o", stop=" tock", max_tokens=30, min_tokens=4).outputs[0]
    assert (early.text, len(early.token_ids)) == (" tick", 2)
    assert (late.text, len(late.token_ids), late.stop_reason) == (" tick tock tack tick", 5, " tock")


def test_end_of_sequence_waits_for_min_tokens(scripted: Scripted) -> None:
    (only,) = scripted.answer("say p", min_tokens=9, max_tokens=12).outputs
    assert only.token_ids[:4] == scripted.said["p"]
    assert EOS not in only.token_ids[:9]
    assert len(only.token_ids) >= 9
    assert scripted.answer("say p", min_tokens=4).outputs[0].text == TEXTS["p"]


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_token_ends_it_and_is_named(scripted: Scripted, include: bool) -> None:
    said = scripted.said["o"]
    (only,) = scripted.answer("say o", stop_token_ids=[said[1], 7], include_stop_str_in_output=include).outputs
    assert (only.finish_reason, only.stop_reason) == ("stop", said[1])
    assert only.token_ids == said[:2]
    assert only.text == (" tick tock" if include else " tick")
    (late,) = scripted.answer("say o", stop_token_ids=[said[1]], min_tokens=2, max_tokens=9).outputs
    assert said[1] not in late.token_ids[:2]


def test_the_end_token_has_a_text_for_those_who_want_it(scripted: Scripted) -> None:
    assert scripted.answer("say p", skip_special_tokens=False).outputs[0].text == TEXTS["p"]
    both = scripted.answer("say p", skip_special_tokens=False, include_stop_str_in_output=True)
    assert both.outputs[0].text == TEXTS["p"] + "<|end|>"


def test_ignore_eos_goes_on_to_max_tokens(scripted: Scripted) -> None:
    (only,) = scripted.answer("say p", ignore_eos=True, max_tokens=20).outputs
    assert only.token_ids[:5] == [*scripted.said["p"], EOS]
    assert (len(only.token_ids), only.finish_reason, only.stop_reason) == (20, "length", None)
    assert only.text.startswith(TEXTS["p"])
    (ended,) = scripted.answer("say p", ignore_eos=True, stop_token_ids=[EOS]).outputs
    assert (ended.text, ended.stop_reason) == (TEXTS["p"], EOS)


def test_the_context_ends_what_nothing_else_ends(scripted: Scripted) -> None:
    (only,) = scripted.answer(long_prompt("o", CONTEXT - 5), max_tokens=None).outputs
    assert (only.text, only.finish_reason) == (" tick tock tack tick tock", "length")
    (full,) = scripted.answer("say o", max_tokens=None).outputs
    assert len(full.token_ids) == CONTEXT - len("say o")


@pytest.mark.parametrize(("pattern", "count"), [((1, 3), 4), ((3, 3), 2), ((2, 6), 3)])
def test_a_loop_is_seen(scripted: Scripted, pattern: tuple[int, int], count: int) -> None:
    least, most = pattern
    detection = RepetitionDetectionParams(max_pattern_size=most, min_pattern_size=least, min_count=count)
    (only,) = scripted.answer("say o", repetition_detection=detection, max_tokens=200).outputs
    assert only.finish_reason == "repetition"
    assert only.token_ids == (scripted.said["o"] * count)
    assert only.text == " tick tock tack" * count
    assert scripted.answer("say p", repetition_detection=detection).outputs[0].finish_reason == "stop"


# --- choices


def test_a_bias_forces_and_forbids(scripted: Scripted) -> None:
    forced = scripted.answer("say p", logit_bias={ord("a"): 100.0}, max_tokens=5)
    assert forced.outputs[0].text == "aaaaa"
    first = scripted.said["p"][0]
    forbidden = scripted.answer("say p", logit_bias={first: -100.0}, max_tokens=5)
    assert first not in forbidden.outputs[0].token_ids


def test_only_what_is_allowed_is_said(scripted: Scripted) -> None:
    (only,) = scripted.answer("say p", allowed_token_ids=[ord("a"), ord("b")], max_tokens=10).outputs
    best = [max("ab", key=lambda c: scripted.table[t, ord(c)]) for t in [ord("p"), *only.token_ids[:-1]]]
    assert only.text == "".join(best)
    assert scripted.answer("p", allowed_token_ids=[EOS]).outputs[0].text == ""


def test_bad_words_are_never_completed(scripted: Scripted) -> None:
    bias = {ord("a"): 100.0, ord("b"): 90.0, ord("c"): 80.0}

    def say(**params: Any) -> str:
        return scripted.answer("say z", logit_bias=bias, max_tokens=6, **params).outputs[0].text

    assert say() == "aaaaaa"
    assert say(bad_words=["a"]) == "bbbbbb"
    assert say(bad_words=["aa"]) == "ababab"
    assert say(bad_words=["aa", "ba"]) == "abbbbb"
    said = scripted.said["p"]
    (only,) = scripted.answer("say p", bad_words_token_ids=[[said[0], said[1]]]).outputs
    assert only.token_ids[0] == said[0]
    assert only.token_ids[1] != said[1]


def test_several_answers_of_one_prompt(scripted: Scripted) -> None:
    for prompt in ("say z", long_prompt("z")):
        first = scripted.answer(prompt, n=4, temperature=2.0, seed=5, max_tokens=12)
        again = scripted.answer(prompt, n=4, temperature=2.0, seed=5, max_tokens=12)
        other = scripted.answer(prompt, n=4, temperature=2.0, seed=6, max_tokens=12)
        assert [o.index for o in first.outputs] == [0, 1, 2, 3]
        assert len({tuple(o.token_ids) for o in first.outputs}) == 4
        assert essence(first) == essence(again)
        assert [o.token_ids for o in first.outputs] != [o.token_ids for o in other.outputs]
    scripts = scripted.answer("say t", n=3, temperature=1.0)
    assert [o.text for o in scripts.outputs] == [TEXTS["t"]] * 3


def test_a_seed_gives_the_same_answer_whoever_is_asked_beside_it(scripted: Scripted) -> None:
    params = SamplingParams(temperature=1.5, top_p=0.95, top_k=50, min_p=0.001, seed=11, max_tokens=15, logprobs=2)
    alone = scripted.llm.generate("say z", params, use_tqdm=False)[0]
    others = [SamplingParams(temperature=1.0, max_tokens=n) for n in (3, 30, 9)]
    together = scripted.llm.generate(["say y", long_prompt("w"), "say z", "v"], [*others[:2], params, others[2]], use_tqdm=False)[2]
    assert essence(alone) == essence(together)


def test_no_seed_gives_another_answer_each_time(scripted: Scripted) -> None:
    assert len({scripted.answer("say z", temperature=2.0, max_tokens=12).outputs[0].text for _ in range(3)}) == 3


# --- figures


def check_position(position: LogprobsOnePosition, row: Table, token: int, count: int, tokenizer: Tokenizer) -> None:
    """The token itself and the `count` best, with the table's figures. Where tokens are equal, any of them may be among the best."""
    for each, entry in position.items():
        assert entry.logprob == pytest.approx(row[each], abs=ATOL["float32"])
        assert entry.decoded_token == tokenizer.decode([each])
    ranked = sorted((entry.rank or 0, row[each]) for each, entry in position.items() if each != token or (entry.rank or 0) <= count)
    assert [value for _, value in ranked] == sorted(row.tolist(), reverse=True)[:count]
    assert position[token].rank in range(int((row > row[token]).sum()) + 1, int((row >= row[token]).sum()) + 1)
    assert len(position) <= count + 1


@pytest.mark.parametrize("count", [0, 1, 5])
def test_log_probabilities_are_the_table_s(scripted: Scripted, count: int) -> None:
    (only,) = scripted.answer("say z", logprobs=count, temperature=1.5, seed=3, max_tokens=10).outputs
    assert only.logprobs is not None
    tokenizer, before, total = scripted.llm.get_tokenizer(), ord("z"), 0.0
    for token, position in zip(only.token_ids, only.logprobs, strict=True):
        check_position(position, scripted.table[before], token, count, tokenizer)
        total += position[token].logprob
        before = token
    assert only.cumulative_logprob == pytest.approx(total)


def test_log_probabilities_can_be_asked_for_by_id(scripted: Scripted) -> None:
    wanted = [ord("a"), ord("b"), EOS]
    (only,) = scripted.answer("say p", logprob_token_ids=wanted, max_tokens=2).outputs
    assert only.logprobs is not None
    for before, token, position in zip([ord("p"), *only.token_ids], only.token_ids, only.logprobs):
        assert set(position) == {token, *wanted}
        for each in wanted:
            assert position[each].logprob == pytest.approx(scripted.table[before, each], abs=ATOL["float32"])


@pytest.mark.parametrize("length", [1, 20, 3 * CHUNK + 7])
def test_a_prompt_is_scored_in_one_piece_and_in_chunks(scripted: Scripted, length: int) -> None:
    prompt = long_prompt("p", length)
    first, again = (scripted.answer(prompt, prompt_logprobs=2, max_tokens=4, logprobs=1) for _ in range(2))
    assert essence(first) == essence(again)
    assert first.outputs[0].text == TEXTS["p"]
    ids, scores = first.prompt_token_ids, first.prompt_logprobs
    assert ids is not None
    assert scores is not None
    assert scores[0] is None
    assert len(scores) == len(ids) == length
    for place in range(1, length):
        position = scores[place]
        assert position is not None
        check_position(position, scripted.table[ids[place - 1]], ids[place], 2, scripted.llm.get_tokenizer())


def test_a_second_call_finds_the_first_one_s_blocks_and_says_the_same(scripted: Scripted) -> None:
    assert scripted.llm.reset_prefix_cache()
    prompt = long_prompt("t", 5 * BLOCK)
    calls = [scripted.answer(prompt, logprobs=3) for _ in range(3)]
    assert essence(calls[0]) == essence(calls[1]) == essence(calls[2])
    assert [call.num_cached_tokens for call in calls] == [0, 4 * BLOCK, 4 * BLOCK]
    salted = [scripted.answer({"prompt": prompt, "cache_salt": salt}) for salt in ("a", "a", "b")]
    assert [each.num_cached_tokens for each in salted] == [0, 4 * BLOCK, 0]


def test_without_text_there_is_none(scripted: Scripted) -> None:
    (only,) = scripted.answer("say p", detokenize=False, logprobs=1).outputs
    assert (only.text, only.token_ids, only.finish_reason) == ("", [*scripted.said["p"], EOS], "stop")
    assert only.logprobs is not None
    assert only.logprobs[0][only.token_ids[0]].decoded_token is None


def test_moments_of_a_request_are_in_order(scripted: Scripted) -> None:
    metrics = scripted.answer(long_prompt("x")).metrics
    assert metrics is not None
    moments = [
        metrics.arrival_time,
        metrics.queued_time,
        metrics.scheduled_time,
        metrics.first_token_time,
        metrics.last_token_time,
        metrics.finished_time,
    ]
    assert None not in moments
    assert moments == sorted(moments, key=lambda moment: moment or math.nan)
    assert metrics.num_generation_tokens == len(SCRIPTS["x"]) + 1


def test_gauges_are_those_of_now(scripted: Scripted) -> None:
    assert scripted.answer("say o", stop="tick tock", max_tokens=None).outputs[0].finish_reason == "stop"
    assert scripted.gauges() == [0, 0, 0]  # although nobody has read what the engine said of the end
    scripted.llm.enqueue("say o", SamplingParams(temperature=0, max_tokens=400))
    while (now := scripted.gauges())[0] == 0:
        assert now == [0, 1, 0]  # it is not planned yet
    running, waiting, usage = now
    assert (running, waiting) == (1, 0)
    assert usage is not None
    assert usage > 0
    (output,) = scripted.llm.wait_for_completion(use_tqdm=False)
    assert len(output.outputs[0].token_ids) == 400
    assert scripted.gauges() == [0, 0, 0]


# --- beams


def test_beams_are_scored_by_the_table(scripted: Scripted) -> None:
    (found,) = scripted.llm.beam_search("say z", BeamSearchParams(beam_width=3, max_tokens=4))
    assert len(found.sequences) == 3
    for sequence in found.sequences:
        ids = sequence.tokens[len("say z") :]
        score = sum(scripted.table[before, token] for before, token in zip([ord("z"), *ids], ids))
        assert sequence.cum_logprob == pytest.approx(score, abs=4 * ATOL["float32"])
    scores = [sequence.cum_logprob for sequence in found.sequences]
    assert scores == sorted(scores, reverse=True)
    greedy = scripted.answer("say z", max_tokens=4).outputs[0].token_ids
    assert scores[0] >= sum(scripted.table[before, token] for before, token in zip([ord("z"), *greedy], greedy)) - 4 * ATOL["float32"]


def test_a_beam_follows_the_script_to_its_end(scripted: Scripted) -> None:
    found = scripted.llm.beam_search(["say p", "say t"], BeamSearchParams(beam_width=2, max_tokens=10))
    assert [each.sequences[0].text for each in found] == ["say p" + TEXTS["p"], "say t" + TEXTS["t"]]
    assert {each.sequences[0].finish_reason for each in found} == {"stop"}


# --- faults


@pytest.mark.parametrize(
    ("prompt", "params", "parameter"),
    [
        ("x" * CONTEXT, {}, "prompt"),
        ("x" * (CONTEXT + 1), {}, "prompt"),
        ("", {}, "prompt"),
        ([5, 100_000], {}, "prompt"),
        (["ok", 7], {}, "prompt"),
        ("x", {"logprobs": 21}, "logprobs"),
        ("x", {"prompt_logprobs": -1}, "prompt_logprobs"),
        ("x", {"stop_token_ids": [100_000]}, "stop_token_ids"),
        ("x", {"logit_bias": {100_000: 1.0}}, "logit_bias"),
        ("x", {"allowed_token_ids": [100_000]}, "allowed_token_ids"),
        ("x", {"truncate_prompt_tokens": CONTEXT + 1}, "truncate_prompt_tokens"),
    ],
)
def test_what_is_wrong_is_named_before_anything_runs(scripted: Scripted, prompt: Any, params: Any, parameter: str) -> None:
    with pytest.raises(RequestError) as caught:
        scripted.answers(["say p", prompt], **params)
    assert caught.value.parameter == parameter
    assert scripted.answer("say p").outputs[0].text == TEXTS["p"]


def test_ctrl_c_drops_what_runs_and_the_next_call_works(scripted: Scripted) -> None:
    interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        scripted.answers(["say o"] * 400, max_tokens=400)
    assert scripted.gauges() == [0, 0, 0]
    assert scripted.answer("say p").outputs[0].text == TEXTS["p"]


def test_a_misspelt_option_is_named() -> None:
    with pytest.raises(ConfigError, match="max_model_length") as caught:
        LLM("nowhere", max_model_length=5)
    assert "max_model_len" in (caught.value.hint or "")


def test_parameters_survive_being_used(scripted: Scripted) -> None:
    params = SamplingParams(temperature=0, max_tokens=8, stop=[" no"], bad_words=["zz"], logit_bias={3: 1.0}, n=1)
    before = params.copy()
    outputs = [scripted.llm.generate("say p", params, use_tqdm=False)[0] for _ in range(2)]
    assert params == before
    assert [o.outputs[0].text for o in outputs] == ["plain words,"] * 2
