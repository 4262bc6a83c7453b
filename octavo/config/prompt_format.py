"""Which code makes prompts of conversations, where it is not the model's chat template: by --tokenizer-mode, else by architecture."""

from pathlib import Path
from typing import Any

from octavo.config.options import Options
from octavo.errors import ConfigError

_TEMPLATES = ("hf", "glm5_next")  # modes that mean the chat template
_ARCHITECTURES = {
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "DeepseekV4ForCausalLM": "deepseek_v4",
    "DeepseekV4ForConditionalGeneration": "deepseek_v4",
    "DeepseekV41ForCausalLM": "deepseek_v41",
    "KimiK3ForConditionalGeneration": "kimi_k3",
    "GptOssForCausalLM": "harmony",
}
_MODEL_TYPES = {"deepseek_v32": "deepseek_v32", "deepseek_v4": "deepseek_v4", "deepseek_v41": "deepseek_v41"}
_MODEL_TYPES |= {"kimi_k3": "kimi_k3", "gpt_oss": "harmony"}


def decide_renderer(options: Options, hf_config: dict[str, Any], tokenizer: Path, reasons: list[str]) -> str | None:
    """The renderer, a file of octavo/text/renderers; None: the chat template. Raises ConfigError for a mode that the files do not allow."""
    mode = options.tokenizer_mode
    if mode == "mistral" and not (tokenizer / "tekken.json").is_file():
        raise ConfigError(f"--tokenizer-mode mistral: {tokenizer} holds no tekken.json", "leave it at auto, which reads tokenizer.json")
    if mode in _TEMPLATES:
        return None
    found = (_by_files(tokenizer) or _by_architecture(hf_config)) if mode == "auto" else mode
    if found is not None and options.chat_template is not None:
        reasons.append(f"tokenizer_mode = {found}: prompts are made by --chat-template all the same")
    elif found is not None and mode == "auto":
        reasons.append(
            f"tokenizer_mode = {found}: prompts are made by code, not by a chat template; --tokenizer-mode hf takes the template"
        )
    return found


def _by_files(tokenizer: Path) -> str | None:
    """Mistral's own files: its tokenizer alone, or beside weights in its own layout."""
    if not (tokenizer / "tekken.json").is_file():
        return None
    own = not (tokenizer / "tokenizer.json").is_file() or any(tokenizer.glob("consolidated*.safetensors"))
    return "mistral" if own else None


def _by_architecture(hf_config: dict[str, Any]) -> str | None:
    named = next((_ARCHITECTURES[name] for name in hf_config.get("architectures") or [] if name in _ARCHITECTURES), None)
    return named or _MODEL_TYPES.get(str(hf_config.get("model_type")))
