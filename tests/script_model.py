"""The script model: a tiny llama that says exactly what it is told to, through the whole engine.

Attention and MLP outputs are zero, so the hidden state is the embedding of the last token and the next token is read off a table. Each
step of a script has a token of its own whose text is any bytes wished for (torn emoji, torn tags), because its vocabulary entry ends in a
number that the decoder removes. The last byte of the prompt chooses the script.
"""

import itertools
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

HIDDEN = 256
EOS = 256  # after the 256 bytes
MARGIN = 20.0  # by which the logit of the token that follows exceeds every other
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ messages[-1].content[-1:] }}{% endif %}"
)


def byte_letters() -> list[str]:
    """The letter that stands for each byte in byte-level vocabularies."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, extra = {b: chr(b) for b in printable}, 256
    for b in range(256):
        if b not in letters:
            letters[b] = chr(extra)
            extra += 1
    return [letters[b] for b in range(256)]


def write(
    folder: Path,
    scripts: dict[str, list[bytes | str]],
    *,
    ends: bool = True,
    loops: str = "",
    context: int = 1024,
    byte_level: bool = False,
    hidden: int = HIDDEN,
) -> dict[str, list[int]]:
    """Make a checkpoint in `folder` that answers a prompt ending in the character `key` with the pieces of scripts[key], one token each.

    After its last piece a script says end-of-sequence; with ends=False, or if its key is in `loops`, it starts again. Returns the token ids
    of each script.
    byte_level: the tokenizer is an ordinary byte-level one; no piece may then be said twice, nor be a single byte.
    hidden: the model's width; many scripts, which all end with the same token, need more of it.
    """
    letters = byte_letters()
    vocabulary = {letter: i for i, letter in enumerate(letters)} | {"<|end|>": EOS}
    successor: dict[int, int] = {}
    said: dict[str, list[int]] = {}
    for key, pieces in scripts.items():
        tokens: list[int] = []
        for piece in pieces:
            data = piece.encode() if isinstance(piece, str) else piece
            tokens.append(len(vocabulary))
            spelled = "".join(letters[b] for b in data) + ("" if byte_level else f"〔{len(vocabulary)}〕")
            assert spelled not in vocabulary, f"{piece!r} is a token already"
            vocabulary[spelled] = len(vocabulary)
        chain = [ord(key), *tokens, EOS if ends and key not in loops else tokens[0]]
        successor |= dict(itertools.pairwise(chain))
        said[key] = tokens
    _write_weights(folder, len(vocabulary), successor, context, hidden)
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    unnumbered = decoders.Sequence([decoders.Replace(Regex("〔[0-9]+〕"), ""), decoders.ByteLevel()])
    tokenizer.decoder = decoders.ByteLevel() if byte_level else unnumbered
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    facts = {"eos_token": "<|end|>", "chat_template": TEMPLATE, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    return said


def _table(seed: int, vocabulary: int, successor: dict[int, int], hidden: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Embedding and head of a model whose next token is `successor`'s: its logit is about 64, the others are noise of about 4.

    None if chance would have it that some token's noise comes near. A token without a successor is followed by noise.
    """
    embedding = np.random.default_rng(seed).choice([-1.0, 1.0], (vocabulary, hidden)).astype(np.float32)
    head = np.zeros((vocabulary, hidden), np.float32)
    tokens, following = np.array(list(successor)), np.array(list(successor.values()))
    np.add.at(head, following, embedding[tokens] * (64.0 / hidden))
    logits = embedding[tokens] @ head.T
    own = logits[np.arange(len(tokens)), following].copy()
    logits[np.arange(len(tokens)), following] = -np.inf
    return (embedding, head) if (own - logits.max(axis=1)).min() >= MARGIN else None


def _write_weights(folder: Path, vocabulary: int, successor: dict[int, int], context: int, hidden: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    embedding, head = next(filter(None, (_table(seed, vocabulary, successor, hidden) for seed in itertools.count())))
    tensors = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": head,
        "model.norm.weight": np.ones(hidden, np.float32),
        "model.layers.0.input_layernorm.weight": np.ones(hidden, np.float32),
        "model.layers.0.post_attention_layernorm.weight": np.ones(hidden, np.float32),
        "model.layers.0.self_attn.q_proj.weight": np.zeros((64, hidden), np.float32),
        "model.layers.0.self_attn.k_proj.weight": np.zeros((32, hidden), np.float32),
        "model.layers.0.self_attn.v_proj.weight": np.zeros((32, hidden), np.float32),
        "model.layers.0.self_attn.o_proj.weight": np.zeros((hidden, 64), np.float32),
        "model.layers.0.mlp.gate_proj.weight": np.zeros((64, hidden), np.float32),
        "model.layers.0.mlp.up_proj.weight": np.zeros((64, hidden), np.float32),
        "model.layers.0.mlp.down_proj.weight": np.zeros((hidden, 64), np.float32),
    }
    save(folder, tensors, context)


def save(folder: Path, tensors: dict[str, np.ndarray], context: int) -> None:
    """Weights of one layer of a tiny llama, with a config.json that fits them."""
    vocabulary, hidden = tensors["model.embed_tokens.weight"].shape
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "eos_token_id": EOS,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
