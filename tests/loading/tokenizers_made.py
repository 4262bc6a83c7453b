"""Small tokenizers of the kinds that GGUF has, as folders have them."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer

TEXT = ["the cat sat on the mat, the dog ran 123 times; don't stop! naïve 漢字 end of the thing that is there"] * 4
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
VOCABULARY = 340  # of the model: more than there are tokens


def save(folder: Path, tokenizer: Tokenizer, template: str = "{% for m in messages %}{{ m['content'] }}{% endfor %}") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder


def byte_level() -> Tokenizer:
    """Digits apart, as SmolLM's are."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXT, BpeTrainer(vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    return tokenizer


def sentencepiece(prefixed: bool = True) -> Tokenizer:
    """As Llama 2's was converted: bytes for what is unknown, every split of a token a merge, ordered by the token."""
    pieces = ["▁t", "he", "▁the", "at", "▁c", "▁cat", "in", "▁a", "an", "on", "▁th", "ng", "ing"]
    letters = sorted(set("▁" + "abcdefghijklmnopqrstuvwxyz.,!"))
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, *letters])}
    merges = [
        (piece[:cut], piece[cut:]) for piece in pieces for cut in range(1, len(piece)) if {piece[:cut], piece[cut:]} <= set(vocabulary)
    ]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    replace = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace]) if prefixed else replace
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", vocabulary["<s>"])])
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def unsayable() -> Tokenizer:
    """Byte-level, but cut at every letter e."""
    tokenizer = byte_level()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split("e", "isolated"), tokenizer.pre_tokenizer])
    return tokenizer
