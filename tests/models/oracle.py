"""Tiny random checkpoints of each model type, made by transformers, and the logits that transformers computes with them."""

from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

transformers.logging.set_verbosity_error()

_PLAIN: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

# what each type needs beside the plain sizes, so that whatever is particular to it takes part
TYPES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 16},
    "qwen2": {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2},
    "qwen3": {"head_dim": 32},
    "gemma3_text": {"head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 24, "sliding_window_pattern": 3},
    "mixtral": {"num_local_experts": 5, "num_experts_per_tok": 2},
}


def make(model_type: str, changes: dict[str, Any] | None = None, dtype: torch.dtype = torch.float32) -> Any:
    """A transformers model. Weights have such a spread that logits differ clearly; norms and biases are not as they are initialized."""
    torch.manual_seed(0)
    config = CONFIG_MAPPING[model_type](**(_PLAIN | TYPES[model_type] | (changes or {})))
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0, 0.08)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.to(dtype)


def save(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def save_as_in_memory(model: Any, folder: Path) -> Path:
    """With the tensors as transformers holds them in memory: experts packed."""
    model.save_pretrained(folder)
    for file in folder.glob("*.safetensors"):
        file.unlink()
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    save_file({name: tensor.clone() for name, tensor in model.state_dict().items() if name not in tied}, folder / "model.safetensors")
    return folder


def logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """float32 [tokens, vocab], computed in one piece without a cache."""
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float()
