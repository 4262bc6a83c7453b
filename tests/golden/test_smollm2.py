"""Golden: the small real model, greedy in float32, says what transformers says (smollm2.json, made by make_golden.py)."""

import json
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams

pytestmark = pytest.mark.model
GOLDEN = json.loads(Path(__file__).with_name("smollm2.json").read_text())


def test_twenty_prompts(smollm2_gguf: Path) -> None:
    assert len(GOLDEN) == 20
    with LLM(model=str(smollm2_gguf), dtype="float32", max_model_len=1024, kv_cache_memory_bytes=1 << 28) as llm:
        chats = [[{"role": "user", "content": g["prompt"]}] for g in GOLDEN]
        outputs = llm.chat(chats, SamplingParams(temperature=0.0, max_tokens=32), use_tqdm=False)
    for golden, output in zip(GOLDEN, outputs):
        assert output.prompt_token_ids == golden["prompt_token_ids"]
        assert (output.outputs[0].text, output.outputs[0].token_ids) == (golden["text"], golden["token_ids"])
