"""What a chat template writes for an assistant's turn, models write: `auto` knows the format by the template, and reads it back equal."""

from pathlib import Path
from typing import Any

import pytest

from octavo.parsing import catalog
from octavo.parsing.events import Tool
from octavo.text.chat_template import ChatTemplate
from tests.parsing.answers import Answer, read

CHOICES = {  # template: tool format and reasoning format that `auto` takes; "-": none
    "Apertus-8B-Instruct": "- -",
    "Apriel-1.6-15b-Thinker-fixed": "jamba -",
    "Bielik-11B-v3.0-Instruct": "hermes qwen3",
    "ByteDance-Seed-OSS": "seed_oss seed_oss",
    "Cohere2MoE": "- -",
    "CohereForAI-c4ai-command-r-plus-tool_use": "- -",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "- -",
    "GLM-4.6": "glm45 glm45",
    "GLM-4.7-Flash": "glm47 glm47",
    "GigaChat3-10B-A1.8B": "- -",
    "GigaChat3.1-10B-A1.8B": "- -",
    "HuggingFaceTB-SmolLM3-3B": "- qwen3",
    "Kimi-K2-Instruct": "kimi_k2 -",
    "Kimi-K2-Thinking": "kimi_k2 kimi_k2",
    "Kimi-K3": "kimi_k3 kimi_k3",
    "LFM2-8B-A1B": "lfm2 -",
    "LFM2.5-8B-A1B": "lfm2 qwen3",
    "LFM2.5-Instruct": "- -",
    "MiMo-VL": "hermes -",
    "MiniMax-M1": "- -",
    "MiniMax-M2": "minimax_m2 minimax_m2",
    "MiniMax-M3": "minimax_m3 minimax_m3",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral -",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "qwen3_coder qwen3",
    "NVIDIA-Nemotron-Nano-v2": "- qwen3",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "hermes -",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "hermes -",
    "Qwen-QwQ-32B": "hermes qwen3",
    "Qwen-Qwen2.5-7B-Instruct": "hermes -",
    "Qwen-Qwen3-0.6B": "hermes qwen3",
    "Qwen3-Coder": "qwen3_coder -",
    "Qwen3.5-4B": "qwen3_coder qwen3",
    "Reka-Edge": "hermes qwen3",
    "Spark2.5": "glm47 glm47",
    "StepFun3.5-Flash": "qwen3_coder qwen3",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "deepseek_v3 deepseek_r1",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek_v3 deepseek_r1",
    "deepseek-ai-DeepSeek-V3.1": "deepseek_v31 deepseek_v3",
    "deepseek-ai-DeepSeek-V3.2": "deepseek_v32 deepseek_v3",
    "deepseek-ai-DeepSeek-V4": "deepseek_v4 deepseek_v4",
    "deepseek-ai-DeepSeek-V4-Flash-0731": "deepseek_v4 deepseek_v4",
    "fireworks-ai-llama-3-firefunction-v2": "phi4_mini_json -",
    "google-gemma-2-2b-it": "- -",
    "google-gemma-4-31B-it": "gemma4 gemma4",
    "google-gemma-4-31B-it-interleaved": "gemma4 gemma4",
    "ibm-granite-granite-3.3-2B-Instruct": "granite granite",
    "ibm-granite-granite-4.0": "granite4 -",
    "ibm-granite-granite-4.1": "granite4 -",
    "inclusionai-ling-3.0-flash": "glm45 glm45",
    "llama-cpp-deepseek-r1": "deepseek_v3 deepseek_r1",
    "llama-cpp-rwkv-world": "- qwen3",
    "meetkai-functionary-medium-v3.1": "- -",
    "meetkai-functionary-medium-v3.2": "- -",
    "meta-llama-Llama-3.1-8B-Instruct": "llama3_json -",
    "meta-llama-Llama-3.2-3B-Instruct": "llama3_json -",
    "meta-llama-Llama-3.3-70B-Instruct": "llama3_json -",
    "microsoft-Phi-3.5-mini-instruct": "- -",
    "mistralai-Ministral-3-14B-Reasoning-2512": "mistral mistral",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral -",
    "moonshotai-Kimi-K2": "kimi_k2 -",
    "muse-glimmer": "- -",
    "openai-gpt-oss-120b": "openai openai_gptoss",
    "openbmb-MiniCPM5-1B": "- qwen3",
    "poolside-Laguna-S-2.1": "glm47 glm47",
    "poolside-Laguna-XS-2.1": "glm45 glm45",
    "poolside-Laguna-XS.2": "glm45 glm45",
    "tencent-Hy3": "- -",
    "unsloth-Apriel-1.5": "jamba -",
    "unsloth-mistral-Devstral-Small-2507": "mistral -",
    "upstage-Solar-Open-100B": "- -",
}
SILENT = {  # templates that write no calls, or (Kimi) that transformers refuses with them
    "Kimi-K2-Instruct",
    "Kimi-K2-Thinking",
    "LFM2-8B-A1B",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "ibm-granite-granite-3.3-2B-Instruct",
    "fireworks-ai-llama-3-firefunction-v2",
    "llama-cpp-deepseek-r1",
}
SINGLE = {  # those that write one call an answer
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "meta-llama-Llama-3.3-70B-Instruct",
    "openai-gpt-oss-120b",
}
ODD = {  # templates whose history is no answer: thoughts left out of it though the prompt opens one, or written in no format, or refused
    "Apriel-1.6-15b-Thinker-fixed",
    "NVIDIA-Nemotron-Nano-v2",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "openai-gpt-oss-120b",
}
ROOMY = {"Reka-Edge", "llama-cpp-rwkv-world", "poolside-Laguna-XS-2.1", "poolside-Laguna-XS.2"}  # white space around a turn's text
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
ENDS = (  # what ends a turn: tokens that no answer holds
    "<|im_end|>", "[e~[", "<seed:eos>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "<|role_end|>", "<|eot_id|>", "<|eom_id|>", "</s>",
    "<turn|>", "<|tool_response>", "<|call|>", "<|return|>", "<end_of_turn>", "<sep>", "</assistant>", "<|end_of_msg|>", "<SPECIAL_12>",
    "\n<|end|>\n",
)  # fmt: skip
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "a city"},
        "days": {"type": "integer", "description": "how many"},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "words"},
        "place": {"type": "object", "properties": {"x": {"type": "boolean", "description": "x"}}, "description": "a place"},
    },
    "required": ["city"],
}
NAMES = ("get_weather", "find")
TOOLS = [{"type": "function", "function": {"name": name, "description": "It looks.", "parameters": PARAMETERS}} for name in NAMES]
OFFERED = [Tool(name, PARAMETERS) for name in NAMES]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("get_weather", {"city": "Paris", "days": 3, "tags": ["a", "b"], "place": {"x": True}}),
    ("find", {"city": 'Zürich "W" <b>\n& more', "days": -1}),
]


def turn(calls: list[tuple[str, dict[str, Any]]], content: str = "", reasoning: str = "") -> dict[str, Any]:
    made: list[dict[str, Any]] = [
        {"id": f"abcdefgh{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning:
        message |= {"reasoning_content": reasoning, "thinking": reasoning}
    return message | ({"tool_calls": made} if made else {})


def written(template: ChatTemplate, message: dict[str, Any]) -> tuple[str, str]:
    """The prompt for an answer, and the answer as the template writes it, without what ends the turn."""
    user = {"role": "user", "content": "Weather?"}
    known: dict[str, Any] = {"tools": TOOLS, "special_tokens": SPECIAL_TOKENS}
    whole = template.render([user, message], **known).text
    prompt = template.render([user], add_generation_prompt=True, **known).text
    shared = prompt[: next((i for i, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), min(len(prompt), len(whole)))]
    if len(shared) < len(prompt):  # the history is not written as the prompt is: as far as both agree, but no torn marker
        shared = shared[: shared.rfind("<")] if "<" in shared.rpartition("\n")[2].rpartition(">")[2] else shared
    answer = whole[len(shared) :]
    stops = [at for end in ENDS if (at := answer.find(end)) >= 0]
    return shared, answer[: min(stops, default=len(answer))]


def source(folder: Path, name: str) -> str:
    return (folder / "templates" / f"{name}.jinja").read_text(encoding="utf-8")


def chosen(name: str) -> tuple[str | None, str | None]:
    tool, reasoning = (None if choice == "-" else choice for choice in CHOICES[name].split())
    return tool, reasoning


@pytest.mark.oracle
@pytest.mark.parametrize("name", CHOICES)
def test_auto_knows_the_format(llama_cpp_models: Path, name: str) -> None:
    template = source(llama_cpp_models, name)
    found = [catalog.settle(kind, "auto", template=template).name for kind in ("tools", "reasoning")]
    assert tuple(found) == chosen(name)


@pytest.mark.oracle
def test_every_template_has_its_line(llama_cpp_models: Path) -> None:
    assert {file.stem for file in (llama_cpp_models / "templates").glob("*.jinja")} == set(CHOICES)


@pytest.mark.oracle
@pytest.mark.parametrize("name", [name for name in CHOICES if chosen(name)[0] and name not in SILENT])
def test_calls_are_read_back(llama_cpp_models: Path, name: str) -> None:
    tool, reasoning = chosen(name)
    calls = CALLS[:1] if name in SINGLE else CALLS
    prompt, answer = written(ChatTemplate(source(llama_cpp_models, name)), turn(calls))
    assert read(answer, tool, reasoning, tools=OFFERED, prompt_end=prompt) == Answer("", "", tuple(calls))


@pytest.mark.oracle
@pytest.mark.parametrize("calls", [CALLS[:1], []], ids=["call", "text"])
@pytest.mark.parametrize("name", [name for name in CHOICES if chosen(name) != (None, None) and name not in SILENT | ODD])
def test_a_whole_turn_is_read_back(llama_cpp_models: Path, name: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    tool, reasoning = chosen(name)
    if tool is None:
        calls = []
    thought, said = "Well, hm.\nSo.", "I look: there."
    prompt, answer = written(ChatTemplate(source(llama_cpp_models, name)), turn(calls, said, thought))
    thought, said = thought if thought in answer else "", said if said in answer else ""
    got = read(answer, tool, reasoning, tools=OFFERED, prompt_end=prompt)
    assert (got._replace(content=got.content.strip()) if name in ROOMY else got) == Answer(thought, said, tuple(calls))
