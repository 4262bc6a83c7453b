"""LLM over a scripted engine: order, text, stop strings, n, logprobs, refusals, interruption."""

from typing import Any

import pytest

from octavo.errors import RequestError
from octavo.frontend.llm import LLM
from octavo.protocol.columns import unpack
from octavo.protocol.messages import EngineRequest
from octavo.protocol.sampling_params import SamplingParams, StructuredOutputsParams
from octavo.text.tokenizer import Tokenizer
from tests.unit.frontend.scripted import MAX_MODEL_LEN, ScriptedClient, ScriptedEngine, make_config


def make(tokenizer: Tokenizer, script: Any, per_step: int = 1, **changes: Any) -> tuple[LLM, ScriptedEngine]:
    engine = ScriptedEngine(tokenizer, script, per_step)
    return LLM.from_config(make_config(tokenizer, **changes), ScriptedClient(engine), tokenizer), engine  # type: ignore[arg-type]


def echo(tokenizer: Tokenizer) -> Any:
    return lambda request: "<" + tokenizer.decode(unpack(request.token_ids).tolist()) + ">"


def test_answers_come_in_the_order_of_the_prompts(tokenizer: Tokenizer) -> None:
    llm, _ = make(tokenizer, echo(tokenizer))
    prompts = ["a much longer prompt than the others", "b", {"prompt_token_ids": tokenizer.encode("c")}, tokenizer.encode("d")]
    outputs = llm.generate(prompts, SamplingParams(max_tokens=50), use_tqdm=False)
    assert [o.outputs[0].text for o in outputs] == ["<a much longer prompt than the others>", "<b>", "<c>", "<d>"]
    assert [o.prompt for o in outputs] == ["a much longer prompt than the others", "b", None, None]
    assert all(o.finished and o.outputs[0].finish_reason == "stop" for o in outputs)
    assert outputs[1].outputs[0].token_ids[-1] == tokenizer.eos_token_id


def test_max_tokens_ends_with_length_and_keeps_no_torn_character(tokenizer: Tokenizer) -> None:
    llm, _ = make(tokenizer, "ab😀cd")
    (output,) = llm.generate("x", SamplingParams(max_tokens=6), use_tqdm=False)
    assert output.outputs[0].text == "ab😀"
    assert output.outputs[0].finish_reason == "length"


@pytest.mark.parametrize("per_step", [1, 3])
@pytest.mark.parametrize(
    ("stop", "include", "text"), [("lo w", False, "hel"), ("lo w", True, "hello w"), (["zzz", "d!"], False, "hello worl")]
)
def test_stop_string_cuts_the_text_and_aborts_in_the_engine(
    tokenizer: Tokenizer, per_step: int, stop: Any, include: bool, text: str
) -> None:
    llm, engine = make(tokenizer, "hello world!! and more", per_step)
    params = SamplingParams(max_tokens=50, stop=stop, include_stop_str_in_output=include)
    (output,) = llm.generate("x", params, use_tqdm=False)
    assert output.outputs[0].text == text
    assert output.outputs[0].finish_reason == "stop"
    assert output.outputs[0].stop_reason == (stop if isinstance(stop, str) else "d!")
    assert engine.aborted == [engine.added[0].request_id]
    assert not engine.running


def test_stop_token_is_told_and_not_shown(tokenizer: Tokenizer) -> None:
    llm, _ = make(tokenizer, "abcd")
    c = tokenizer.encode("c")[0]
    (output,) = llm.generate("x", SamplingParams(stop_token_ids=[c]), use_tqdm=False)
    assert (output.outputs[0].text, output.outputs[0].stop_reason, output.outputs[0].token_ids[-1]) == ("ab", c, c)
    (output,) = llm.generate("x", SamplingParams(stop_token_ids=[c], include_stop_str_in_output=True), use_tqdm=False)
    assert output.outputs[0].text == "abc"


def test_ignore_eos_leaves_the_engine_no_end_token(tokenizer: Tokenizer) -> None:
    llm, engine = make(tokenizer, "ab")
    (output,) = llm.generate("x", SamplingParams(max_tokens=9, ignore_eos=True), use_tqdm=False)
    assert engine.added[0].eos_token_ids == []
    assert len(output.outputs[0].token_ids) == 9


def test_n_sequences_have_their_own_seeds_and_wait_for_the_shared_prompt(tokenizer: Tokenizer) -> None:
    llm, engine = make(tokenizer, lambda request: f"seed {request.seed}")
    (output,) = llm.generate("a prompt of more than one block", SamplingParams(n=3, seed=7, max_tokens=20), use_tqdm=False)
    assert [o.text for o in output.outputs] == ["seed 7", "seed 8", "seed 9"]
    assert [o.index for o in output.outputs] == [0, 1, 2]
    short = llm.generate("short", SamplingParams(n=2, seed=1, max_tokens=20), use_tqdm=False)[0]
    assert [o.text for o in short.outputs] == ["seed 1", "seed 2"]
    assert len({r.request_id for r in engine.added}) == 5


def test_children_of_a_long_prompt_start_after_the_first_one_has_filled_the_cache(tokenizer: Tokenizer) -> None:
    llm, engine = make(tokenizer, "ab")
    counts: list[int] = []
    llm._client.before_step = lambda: counts.append(len(engine.added))  # type: ignore[attr-defined]
    llm.generate("a prompt of more than one block", SamplingParams(n=3, max_tokens=20), use_tqdm=False)
    assert counts[:2] == [1, 3]
    counts.clear()
    llm.generate("short", SamplingParams(n=3, max_tokens=20), use_tqdm=False)
    assert counts[0] == 6


def test_seeds_are_drawn_from_the_engine_s_own(tokenizer: Tokenizer) -> None:
    def seeds(**changes: Any) -> list[int]:
        llm, engine = make(tokenizer, "a", **changes)
        llm.generate(["x", "y"], SamplingParams(), use_tqdm=False)
        return [r.seed for r in engine.added]

    assert seeds() == seeds()
    assert len(set(seeds())) == 2
    assert seeds() != seeds(seed=1)


def test_logprobs_have_the_token_and_its_rivals_with_their_texts(tokenizer: Tokenizer) -> None:
    llm, _ = make(tokenizer, "a😀b")
    (output,) = llm.generate("hello", SamplingParams(max_tokens=20, logprobs=2, prompt_logprobs=1), use_tqdm=False)
    found = output.outputs[0]
    assert found.logprobs is not None
    assert len(found.logprobs) == len(found.token_ids)
    own = [position[token] for token, position in zip(found.token_ids, found.logprobs)]
    assert "".join(str(e.decoded_token) for e in own[:-1]) == found.text == "a😀b"
    assert all(len(position) == 2 for position in found.logprobs)
    assert [e.rank for e in found.logprobs[0].values()] == [1, 2]
    assert found.cumulative_logprob == pytest.approx(-0.5 * len(found.token_ids))


def test_prompt_logprobs_are_one_per_token_from_the_second_on(tokenizer: Tokenizer) -> None:
    llm, engine = make(tokenizer, "a")
    ids = tokenizer.encode("hello you there")
    (output,) = llm.generate(ids, SamplingParams(n=2, max_tokens=2, prompt_logprobs=1), use_tqdm=False)
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    assert [next(iter(p)) for p in output.prompt_logprobs[1:] if p is not None] == ids[1:]
    assert [r.sampling.prompt_logprobs for r in engine.added if r.sampling] == [1, None]


def test_default_parameters_are_the_model_s_recommendation_only_when_none_are_given(tokenizer: Tokenizer) -> None:
    llm, engine = make(tokenizer, "a", default_sampling={"temperature": 0.6, "top_p": 0.9})
    llm.generate("x", use_tqdm=False)
    llm.generate("x", SamplingParams(temperature=0.5), use_tqdm=False)
    first, second = (r.sampling for r in engine.added)
    assert first is not None
    assert second is not None
    assert (first.temperature, first.top_p) == (0.6, 0.9)
    assert (second.temperature, second.top_p) == (0.5, 1.0)


def test_max_tokens_is_what_the_context_leaves(tokenizer: Tokenizer) -> None:
    llm, engine = make(tokenizer, "a")
    llm.generate(["xy", "xy"], [SamplingParams(max_tokens=None), SamplingParams(max_tokens=10**6, min_tokens=10**5)], use_tqdm=False)
    assert [r.sampling.max_tokens for r in engine.added if r.sampling] == [MAX_MODEL_LEN - 2] * 2
    assert [r.sampling.min_tokens for r in engine.added if r.sampling] == [0, MAX_MODEL_LEN - 2]


def test_bad_words_become_both_spellings(tokenizer: Tokenizer) -> None:
    llm, engine = make(tokenizer, "a")
    llm.generate("x", SamplingParams(bad_words=["hello"]), use_tqdm=False)
    sampling = engine.added[0].sampling
    assert sampling is not None
    texts = sorted(tokenizer.decode(ids) for ids in sampling.bad_words_token_ids or [])
    assert texts == [" hello", "hello"]


def test_truncation_keeps_the_end_of_the_prompt(tokenizer: Tokenizer) -> None:
    llm, engine = make(tokenizer, "a")
    llm.generate(
        [[1, 2, 3, 4], [5] * 400], [SamplingParams(truncate_prompt_tokens=2), SamplingParams(truncate_prompt_tokens=-1)], use_tqdm=False
    )
    assert unpack(engine.added[0].token_ids).tolist() == [3, 4]
    assert len(unpack(engine.added[1].token_ids)) == MAX_MODEL_LEN - 16


@pytest.mark.parametrize(
    ("prompt", "params", "parameter", "words"),
    [
        ("", SamplingParams(), "prompt", "empty"),
        ([], SamplingParams(), None, None),
        ([[]], SamplingParams(), "prompt", "empty"),
        ([[5] * (MAX_MODEL_LEN + 9)], SamplingParams(), "prompt", f"maximum context length is {MAX_MODEL_LEN}.* {MAX_MODEL_LEN + 9} input"),
        ([[5] * MAX_MODEL_LEN], SamplingParams(), "prompt", "no room"),
        ([10**6], SamplingParams(), "prompt", "token id 1000000 is outside the vocabulary"),
        ([-1, 5], SamplingParams(), "prompt", "token id -1"),
        (["ok", 5.5], SamplingParams(), "prompt", "must be text"),
        ([["a"]], SamplingParams(), "prompt", "integers only"),
        ([[True]], SamplingParams(), "prompt", "integers only"),
        ("x", SamplingParams(logit_bias={99999: 1.0}), "logit_bias", "outside"),
        ("x", SamplingParams(stop_token_ids=[99999]), "stop_token_ids", "outside"),
        ("x", SamplingParams(logprobs=21), "logprobs", "at most 20"),
        ("x", SamplingParams(structured_outputs=StructuredOutputsParams(regex="(")), "structured_outputs", "regex"),
        ("x", SamplingParams(thinking_token_budget=4), "thinking_token_budget", "--reasoning-parser"),
        ("x", SamplingParams(truncate_prompt_tokens=4000), "truncate_prompt_tokens", "more than the context"),
        ({"prompt": "x", "multi_modal_data": {"image": 1}}, SamplingParams(), "multi_modal_data", "not available"),
        ({"prompt": "x", "cache_salt": ""}, SamplingParams(), "cache_salt", "non-empty"),
    ],
)
def test_wrong_requests_are_refused_by_name_before_the_engine_sees_any(
    tokenizer: Tokenizer, prompt: Any, params: SamplingParams, parameter: str | None, words: str | None
) -> None:
    llm, engine = make(tokenizer, "a")
    if parameter is None:
        assert llm.generate(prompt, params, use_tqdm=False) == []
        return
    with pytest.raises(RequestError, match=words) as caught:
        llm.generate(prompt, params, use_tqdm=False)
    assert caught.value.parameter == parameter
    assert engine.added == []


def test_one_failed_request_does_not_take_the_others_along(tokenizer: Tokenizer) -> None:
    llm, engine = make(tokenizer, "ok")
    engine.fails = {"1-": "logits hold NaN"}
    outputs = llm.generate(["a", "b", "c"], SamplingParams(), use_tqdm=False)
    assert [o.error for o in outputs] == [None, "logits hold NaN", None]
    assert [o.outputs[0].finish_reason for o in outputs] == ["stop", "error", "stop"]


def test_interruption_aborts_everything_and_the_next_call_works(tokenizer: Tokenizer) -> None:
    llm, engine = make(tokenizer, "abcdefgh")
    steps = iter([None, None, KeyboardInterrupt()])

    def before_step() -> None:
        if (error := next(steps, None)) is not None:
            raise error

    llm._client.before_step = before_step  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["x", "y"], SamplingParams(), use_tqdm=False)
    assert len(engine.aborted) == 2
    assert not engine.running
    assert llm.generate("x", SamplingParams(), use_tqdm=False)[0].outputs[0].text == "abcdefgh"


def test_enqueue_then_wait(tokenizer: Tokenizer) -> None:
    llm, _ = make(tokenizer, echo(tokenizer))
    assert len(llm.enqueue(["a", "b"])) == 2
    llm.enqueue("c")
    assert [o.outputs[0].text for o in llm.wait_for_completion(use_tqdm=False)] == ["<a>", "<b>", "<c>"]


def test_chat_applies_the_template_and_user_text_stays_text(tokenizer: Tokenizer) -> None:
    llm, engine = make(tokenizer, "fine")
    (output,) = llm.chat([{"role": "user", "content": "hi <|end|>"}], SamplingParams(), use_tqdm=False)
    assert output.prompt == "<|start|>user\nhi <|end|><|end|>\n<|start|>assistant\n"
    ids = unpack(engine.added[0].token_ids).tolist()
    assert ids.count(tokenizer.eos_token_id) == 1
    assert output.outputs[0].text == "fine"
    several = llm.chat([[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]], SamplingParams(), use_tqdm=False)
    assert len(several) == 2


def test_detokenize_off_gives_ids_only(tokenizer: Tokenizer) -> None:
    llm, _ = make(tokenizer, "abc")
    (output,) = llm.generate("x", SamplingParams(detokenize=False, logprobs=1), use_tqdm=False)
    assert output.outputs[0].text == ""
    assert len(output.outputs[0].token_ids) == 4
    assert output.outputs[0].logprobs is not None
    assert next(iter(output.outputs[0].logprobs[0].values())).decoded_token is None


def test_progress_tells_what_was_achieved(tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    llm, _ = make(tokenizer, "abc")
    llm.generate(["x", "y"], SamplingParams())
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "2 of 2 prompts in" in printed.err
    assert "tokens/s" in printed.err


def test_a_bar_of_the_caller_s_is_used(tokenizer: Tokenizer) -> None:
    calls: list[Any] = []

    class Bar:
        def __init__(self, **options: Any) -> None:
            calls.append(options)

        def update(self, n: int) -> None:
            calls.append(n)

        def close(self) -> None:
            calls.append("closed")

    llm, _ = make(tokenizer, "abc")
    llm.generate(["x", "y"], SamplingParams(), use_tqdm=Bar)
    assert calls == [{"total": 2, "desc": "Processed prompts"}, 1, 1, "closed"]


def test_metrics_add_up(tokenizer: Tokenizer) -> None:
    llm, _ = make(tokenizer, "abc")
    llm.generate(["x", "y"], [SamplingParams(max_tokens=2), SamplingParams()], use_tqdm=False)
    found = {(m.name, m.labels.get("finished_reason")): m for m in llm.get_metrics()}
    assert found["vllm:request_success", "stop"].value == 1
    assert found["vllm:request_success", "length"].value == 1
    assert found["vllm:generation_tokens", None].value == 6
    assert found["vllm:request_generation_tokens", None].sum == 6
    assert found["vllm:time_to_first_token_seconds", None].count == 2
    assert found["vllm:inter_token_latency_seconds", None].count == 4


def test_closing_twice_is_one_end(tokenizer: Tokenizer) -> None:
    llm, _ = make(tokenizer, "abc")
    with llm:
        llm.reset_prefix_cache()
    llm.close()
    assert llm._client.is_shut_down  # type: ignore[attr-defined]


def test_sequences_of_a_failed_child_end_together(tokenizer: Tokenizer) -> None:
    llm, engine = make(tokenizer, "abcdef")

    def script(request: EngineRequest) -> str:
        if request.request_id.endswith("_1"):
            engine.fails[request.request_id] = "broken"
        return "abcdef"

    engine.script = script
    (output,) = llm.generate("x", SamplingParams(n=3), use_tqdm=False)
    assert output.error == "broken"
    assert output.finished
    assert not engine.running


def test_a_request_that_the_engine_does_not_let_in_is_a_wrong_request(tokenizer: Tokenizer) -> None:
    llm, engine = make(tokenizer, "a")
    engine.refusal = "the request needs more blocks than the cache has"
    with pytest.raises(RequestError, match="more blocks"):
        llm.generate(["x", "y"], SamplingParams(n=2), use_tqdm=False)
    assert not engine.running
    engine.refusal = None
    assert llm.generate("x", SamplingParams(), use_tqdm=False)[0].outputs[0].text == "a"
