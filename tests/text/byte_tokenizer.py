"""A tokenizer whose every byte is a token, with special tokens as asked for."""

from collections.abc import Iterable

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from octavo.text.source import TokenizerSource
from octavo.text.tokenizer import Tokenizer


def byte_tokenizer(special: Iterable[str], renderer: str | None = None, template: str | None = None) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE(vocab={character: index for index, character in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    return Tokenizer(TokenizerSource(backend, {}, template), renderer=renderer)
