"""Which code makes prompts follows from the mode, the files of the tokenizer and the architecture; a template that is given is stronger."""

from pathlib import Path
from typing import Any

import pytest

from octavo import plugins
from octavo.config.options import Options
from octavo.config.prompt_format import decide_renderer
from octavo.errors import ConfigError


def decided(folder: Path, mode: str = "auto", config: dict[str, Any] | None = None, **options: Any) -> tuple[str | None, list[str]]:
    reasons: list[str] = []
    return decide_renderer(Options(tokenizer_mode=mode, **options), config or {}, folder, reasons), reasons


@pytest.mark.parametrize(
    ("config", "renderer"),
    [
        ({"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32"}, "deepseek_v32"),
        ({"architectures": ["DeepseekV4ForConditionalGeneration"]}, "deepseek_v4"),
        ({"model_type": "deepseek_v41"}, "deepseek_v41"),
        ({"architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3"}, "kimi_k3"),
        ({"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss"}, "harmony"),
        ({"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa"}, None),
        ({"architectures": ["Glm5NextForConditionalGeneration"], "model_type": "glm5_next"}, None),
        ({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"}, None),
        ({}, None),
    ],
)
def test_by_architecture(tmp_path: Path, config: dict[str, Any], renderer: str | None) -> None:
    found, reasons = decided(tmp_path, config=config)
    assert found == renderer
    assert [f"tokenizer_mode = {renderer}" in reason for reason in reasons] == ([True] if renderer else [])
    assert decided(tmp_path, "hf", config)[0] is None
    assert decided(tmp_path, "glm5_next", config)[0] is None


def test_by_files(tmp_path: Path) -> None:
    (tmp_path / "tekken.json").write_text("{}")
    assert decided(tmp_path)[0] == "mistral"
    (tmp_path / "tokenizer.json").write_text("{}")
    assert decided(tmp_path)[0] is None
    assert decided(tmp_path, "mistral")[0] == "mistral"
    (tmp_path / "consolidated.safetensors").write_text("")
    assert decided(tmp_path)[0] == "mistral"
    assert decided(tmp_path, "hf")[0] is None


def test_a_mode_that_is_typed(tmp_path: Path) -> None:
    for name in plugins.names("text.renderers"):
        if name != "mistral":
            assert decided(tmp_path, name) == (name, [])
    with pytest.raises(ConfigError, match=r"holds no tekken\.json"):
        decided(tmp_path, "mistral")


def test_a_template_that_is_given_is_told(tmp_path: Path) -> None:
    _, reasons = decided(tmp_path, "kimi_k3", chat_template="{{ 1 }}")
    assert "by --chat-template all the same" in reasons[0]
