"""LLM.read: the messages that answers of LLM.chat are."""

import json
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from octavo.errors import ConfigError, RequestError
from tests.script_model import write

TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]
SMALL: dict[str, Any] = {"dtype": "float32", "max_num_seqs": 4, "max_num_batched_tokens": 64, "kv_cache_memory_bytes": 1 << 20}
GREEDY = SamplingParams(temperature=0.0, max_tokens=64)


def test_an_answer_becomes_the_message_that_it_is(tmp_path: Path) -> None:
    call = '<tool_call>\n{"name": "now", "arguments": {"zone": "UTC"}}\n</tool_call>'
    write(tmp_path, {"c": ["<think>\nHm", "m.\n</think>\n\nI look.\n", call], "p": ["Just", " text."]})
    with LLM(str(tmp_path), reasoning_parser="qwen3", gpu_memory_utilization=0.01, **SMALL) as llm:
        (spoken,) = llm.chat([{"role": "user", "content": "c"}], GREEDY, tools=TOOLS, use_tqdm=False)
        (plain,) = llm.chat([{"role": "user", "content": "p"}], GREEDY, use_tqdm=False)
        assert spoken.outputs[0].text.endswith(call)  # as the model wrote it
        (message,) = llm.read(spoken, GREEDY, tools=TOOLS, tool_call_parser="hermes")
        (without_tools,) = llm.read(spoken, GREEDY)
        assert llm.read(plain, GREEDY, tools=TOOLS, tool_call_parser="hermes") == [{"role": "assistant", "content": "Just text."}]
        with pytest.raises(ConfigError, match="unheard_of"):
            llm.read(spoken, GREEDY, tools=TOOLS, tool_call_parser="unheard_of")
        with pytest.raises(RequestError, match="function"):
            llm.read(spoken, GREEDY, tools=[{"name": "now"}], tool_call_parser="hermes")
    assert (message["reasoning"], message["content"]) == ("Hmm.", "I look.")
    (made,) = message["tool_calls"]
    assert made["type"] == "function"
    assert made["id"].startswith("call_")
    assert made["function"]["name"] == "now"
    assert json.loads(made["function"]["arguments"]) == {"zone": "UTC"}
    assert without_tools == {"role": "assistant", "content": "I look.\n" + call, "reasoning": "Hmm."}
