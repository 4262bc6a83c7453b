"""The random model: a tiny llama with random weights and a byte-level vocabulary. Nothing but a grammar makes sense of what it says."""

import json
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.script_model import byte_letters, save

EOS = 256
SPECIALS = ("<|end|>", "<think>", "</think>", "<|call|>", "<|tail|>")
PIECES = (
    *(
        '{"',
        '":',
        '": ',
        ', "',
        '",',
        '"}',
        '"]',
        '": "',
        '","',
        "[]",
        "{}",
        '""',
        "}}",
        "]}",
        '"}}',
        "true",
        "false",
        "null",
        "  ",
        "    ",
    ),
    *("\n  ", "\n    ", "\n\n", "12", "00", "999", "-1", "0.", "e+", "name", "age", "the", " and", "value", "yes", "no", "maybe", "é", "ü"),
    *("日", "本", "</", "<f", "=>", "::", "\\n", '\\"', "\\u00", "2024", "-01", "T10", "@", ".com", "http", "://"),
)
HIDDEN = 64


def write(folder: Path, *, context: int = 512, seed: int = 0, scale: float = 1.0) -> Path:
    """Make the checkpoint. scale: of its logits; 0 makes every token as likely as any other."""
    letters = byte_letters()
    vocabulary = {letter: index for index, letter in enumerate(letters)}
    for text in SPECIALS:
        vocabulary[text] = len(vocabulary)
    merges = []
    for piece in PIECES:
        spelled = [letters[byte] for byte in piece.encode()]
        for end in range(2, len(spelled) + 1):
            whole = "".join(spelled[:end])
            if whole not in vocabulary:
                merges.append(("".join(spelled[: end - 1]), spelled[end - 1]))
                vocabulary[whole] = len(vocabulary)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIALS])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    facts = {"eos_token": "<|end|>", "chat_template": template, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    _write_weights(folder, len(vocabulary) + 11, context, seed, scale)  # a padded vocabulary, as real models have
    return folder


def _write_weights(folder: Path, vocabulary: int, context: int, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)

    def random(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    tensors = {
        "model.embed_tokens.weight": random(vocabulary, HIDDEN),
        "lm_head.weight": random(vocabulary, HIDDEN) * np.float32(scale / 8),
        "model.norm.weight": np.ones(HIDDEN, np.float32),
        "model.layers.0.input_layernorm.weight": np.ones(HIDDEN, np.float32),
        "model.layers.0.post_attention_layernorm.weight": np.ones(HIDDEN, np.float32),
        "model.layers.0.self_attn.q_proj.weight": random(64, HIDDEN) / 8,
        "model.layers.0.self_attn.k_proj.weight": random(32, HIDDEN) / 8,
        "model.layers.0.self_attn.v_proj.weight": random(32, HIDDEN) / 8,
        "model.layers.0.self_attn.o_proj.weight": random(HIDDEN, 64) / 8,
        "model.layers.0.mlp.gate_proj.weight": random(64, HIDDEN) / 8,
        "model.layers.0.mlp.up_proj.weight": random(64, HIDDEN) / 8,
        "model.layers.0.mlp.down_proj.weight": random(HIDDEN, 64) / 8,
    }
    save(folder, tensors, context)
