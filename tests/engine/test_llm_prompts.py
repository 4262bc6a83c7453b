"""A model in Mistral's own files talks in Mistral's own format."""

import json
from pathlib import Path
from typing import Any

from octavo.frontend.llm import LLM
from octavo.protocol.sampling_params import SamplingParams
from tests.engine.tiny import LLAMA
from tests.text import tekken_files
from tests.text.conversations import CASES

TINY: dict[str, Any] = {
    "load_format": "dummy",
    "max_model_len": 512,
    "kv_cache_memory_bytes": 2**24,
    "max_num_seqs": 4,
    "cpu_threads": 1,
}
ONE = SamplingParams(max_tokens=1, temperature=0.0)


def test_tekken(tmp_path: Path) -> None:
    folder = tekken_files.write(tmp_path / "model", "v13")
    size = tekken_files.contents("v13")["config"]["default_vocab_size"]
    (folder / "config.json").write_text(json.dumps(LLAMA | {"vocab_size": size, "eos_token_id": 2, "bos_token_id": 1}))
    recorded = json.loads((Path(tekken_files.__file__).parent / "prompts" / "mistral_v13.json").read_text())["prompts"]
    case = CASES["tools"]
    with LLM(str(folder), **TINY) as llm:
        assert llm.config.model.renderer == "mistral"
        answer = llm.chat(case["messages"], ONE, tools=case["tools"], use_tqdm=False)[0]
        assert answer.prompt_token_ids == recorded["tools"]
        assert answer.prompt is not None
        assert answer.prompt.startswith("<s>[AVAILABLE_TOOLS][{")
        text = llm.generate("[INST]hello", ONE, use_tqdm=False)[0]
        assert text.prompt_token_ids is not None
        assert text.prompt_token_ids[:2] == [1, 3]
