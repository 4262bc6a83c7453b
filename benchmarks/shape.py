"""A model of 1.1 billion random weights in the shape of a small llama, for measuring: its text means nothing.

    python -m benchmarks.shape FOLDER [--tokenizer smollm2] [--layers 22]

FOLDER gets safetensors in bfloat16, config.json, and the tokenizer named, cut to its first 32,000 words (in a byte-pair vocabulary they are
those that are merged first). GGUF files of it: octavo quantize FOLDER FILE.gguf --scheme bf16 | q8_0 | q4_0.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SPREAD = 0.02


def weights(config: dict[str, Any], layer: int | None, source: torch.Generator) -> dict[str, torch.Tensor]:
    """Of one layer; of what is around the layers with None. Matrices are drawn at random, norms are 1."""
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    own, shared = (config[name] * config["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))

    def drawn(rows: int, columns: int) -> torch.Tensor:
        return (torch.randn(rows, columns, generator=source) * SPREAD).to(torch.bfloat16)

    ones = torch.ones(hidden, dtype=torch.bfloat16)
    if layer is None:
        words = config["vocab_size"]
        return {"model.embed_tokens.weight": drawn(words, hidden), "lm_head.weight": drawn(words, hidden), "model.norm.weight": ones}
    matrices = {
        "self_attn.q_proj": (own, hidden),
        "self_attn.k_proj": (shared, hidden),
        "self_attn.v_proj": (shared, hidden),
        "self_attn.o_proj": (hidden, own),
        "mlp.gate_proj": (wide, hidden),
        "mlp.up_proj": (wide, hidden),
        "mlp.down_proj": (hidden, wide),
    }
    found = {f"model.layers.{layer}.{name}.weight": drawn(*shape) for name, shape in matrices.items()}
    norms = ("input_layernorm", "post_attention_layernorm")
    return found | {f"model.layers.{layer}.{name}.weight": ones.clone() for name in norms}


def write(folder: Path, config: dict[str, Any], tokenizer: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    source = torch.Generator().manual_seed(0)
    tensors = weights(config, None, source)
    for layer in range(config["num_hidden_layers"]):
        tensors |= weights(config, layer, source)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    words = json.loads((tokenizer / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(cut(words, config["vocab_size"]), ensure_ascii=False))
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (tokenizer / name).exists():
            (folder / name).write_text((tokenizer / name).read_text())


def cut(words: dict[str, Any], size: int) -> dict[str, Any]:
    """A byte-pair tokenizer with its first `size` words."""
    model = words["model"]
    kept = {word: number for word, number in model["vocab"].items() if number < size}
    if model["type"] != "BPE" or len(kept) < size:
        raise SystemExit(f"the tokenizer is no byte-pair vocabulary of {size} words at least")
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    merges = [pair for pair in pairs if pair[0] in kept and pair[1] in kept and "".join(pair) in kept]
    added = [token for token in words.get("added_tokens", []) if token["id"] < size]
    return words | {"added_tokens": added, "model": model | {"vocab": kept, "merges": merges}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", default="smollm2", help="a folder with tokenizer.json, or what octavo serve takes")
    parser.add_argument("--layers", type=int, default=CONFIG["num_hidden_layers"])
    wanted = parser.parse_args()
    from benchmarks.formats import folder_of

    write(wanted.folder, CONFIG | {"num_hidden_layers": wanted.layers}, folder_of(wanted.tokenizer))
    print(f"{wanted.folder}: {sum(file.stat().st_size for file in wanted.folder.iterdir()) / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
