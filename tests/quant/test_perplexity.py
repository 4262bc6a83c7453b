"""W8A8 costs less than one percent of perplexity: SmolLM2-135M-Instruct over 50 thousand tokens of Shakespeare. Fewer tell less: the first
5 thousand of them say 1.05 % where all say 0.70 %.
"""

import json
from pathlib import Path

import pytest

from octavo import environment
from octavo.cli import main as cli

pytestmark = [pytest.mark.model, pytest.mark.slow]
MODEL, DATA = "SmolLM2-135M-Instruct", "shakespeare-photos"
SHARE = 0.01


def test_int8(tmp_path: Path) -> None:
    models = environment.test_models()
    texts = [] if models is None else sorted((models / DATA).rglob("shakespeare.txt"))
    if models is None or not texts or not (models / MODEL / "config.json").exists():
        pytest.skip(f"OCTAVO_TEST_MODELS has no {MODEL} or no {DATA}")
    model, file = str(models / MODEL), tmp_path / "table.json"
    size = ("--text", str(texts[0]), "--tokens", "50176", "--output-len", "2", "--output-json", str(file))
    limits = ("--dtype", "bfloat16", "--max-model-len", "1024", "--kv-cache-memory-bytes", "256M")
    assert cli.main(["bench", "quality", model, f"{model}=int8", *size, *limits]) == 0
    plain, coded = json.loads(file.read_text())["models"]
    assert coded["perplexity"] == pytest.approx(plain["perplexity"], rel=SHARE)
