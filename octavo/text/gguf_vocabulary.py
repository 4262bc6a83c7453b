"""A folder's tokenizer in GGUF's words: the inverse of octavo/text/gguf_tokenizer.py. What is written is built again and must give the ids
that the folder's own gives; a tokenizer that GGUF cannot say is refused.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from octavo.errors import UnsupportedModelError
from octavo.text import folder_tokenizer, gguf_tokenizer
from octavo.text.gguf_tokenizer import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from octavo.text.pretokenizers import BY_NAME
from octavo.text.source import TokenizerSource

# names of pre-tokenizers that are tried before others that do the same
_FIRST = ("llama-bpe", "qwen2", "smollm", "tekken", "gpt-4o", "deepseek-v3")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
# where pre-tokenizers differ: contractions, runs of digits, marks, spaces, cases, scripts, composed letters
SAMPLES = (
    "Hello, world! It's 12345.678 o'clock; WE'LL see ThisAndThat's end...",
    "  two  spaces\tand\ttabs\n\n\nlines\r\n  indented = foo_bar(x[0], **kw)  # done\n",
    "naïve Ünïcödé ßtraße é 漢字かな交じり文 한국어 русский текст العربية हिन्दी",
    "🙂👩‍👩‍👧 ½ ² © $99.99 3×4=12 10^6 a/b\\c 'quoted' \"double\" `code`",
    "x",
    "",
    " leading",
    "trailing ",
    "camelCase HTTPServer v2.0.1-rc3 user@example.com https://example.org/a?b=c&d=e",
)


def metadata(folder: Path, num_tokens: int) -> dict[str, Any]:
    """tokenizer.* of a file whose model has num_tokens rows for tokens: what lacks a token gets a name, what is beyond is left out.

    Raises CheckpointError if the folder has no tokenizer, UnsupportedModelError for one that GGUF cannot say.
    """
    source = folder_tokenizer.read(folder)
    state = json.loads(source.backend.to_str())
    samples = _samples(source.backend)
    wanted = [_within(source.backend.encode(text).ids, num_tokens) for text in samples]
    for found in _ways(source, state, num_tokens):
        found = found | _named(source, num_tokens)
        again = gguf_tokenizer.build(folder, found).backend
        if [again.encode(text).ids for text in samples] == wanted:
            return found | _templates(source)
    raise UnsupportedModelError(
        f"the tokenizer of {folder} cannot be said in GGUF: no way of writing it gives the same tokens again",
        "write compressed-tensors, with whose folder it is kept: --scheme int4 or int8",
    )


def _samples(backend: Backend) -> list[str]:
    """Those above, and texts of added tokens."""
    added = [token.content for _, token in sorted(backend.get_added_tokens_decoder().items())]
    return [*SAMPLES, *(f"a{token}b {token}\n" for token in (*added[:8], *added[-8:]))]


def _within(ids: list[int], num_tokens: int) -> list[int]:
    return [index for index in ids if index < num_tokens]


def _ways(source: TokenizerSource, state: dict[str, Any], num_tokens: int) -> Iterator[dict[str, Any]]:
    """The ways in which it might be said, likeliest first."""
    model = state["model"]
    if model["type"] != "BPE":
        return
    merges = [tuple(merge.split(" ", 1)) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    is_byte_level = "ByteLevel" in json.dumps([state["pre_tokenizer"], state["decoder"]])
    common = _tokens(source.backend, model.get("unk_token"), num_tokens, is_byte_level)
    if is_byte_level:
        common |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": [" ".join(merge) for merge in merges]}
        for name in _names(source.backend):
            yield common | {"tokenizer.ggml.pre": name}
    elif model.get("byte_fallback"):
        common |= {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default"}
        common["tokenizer.ggml.scores"] = _scores(common["tokenizer.ggml.tokens"], merges)
        is_prefixed = "prepend" in json.dumps([state["normalizer"], state["pre_tokenizer"]]).lower()
        for prefixed in (is_prefixed, not is_prefixed):
            yield common | {"tokenizer.ggml.add_space_prefix": prefixed}


def _names(backend: Backend) -> Iterator[str]:
    """Pre-tokenizers that cut the samples as the folder's does, one name for each rule."""
    wanted = [_cuts(backend.pre_tokenizer, text) for text in SAMPLES]
    seen: list[Any] = []
    for name in (*_FIRST, *BY_NAME):
        rule = BY_NAME[name]
        if rule not in seen:
            seen.append(rule)
            made = gguf_tokenizer.byte_level_pre_tokenizer(rule)
            if [_cuts(made, text) for text in SAMPLES] == wanted:
                yield name


def _cuts(pre_tokenizer: Any, text: str) -> list[str]:
    return [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)]


def _tokens(backend: Backend, unknown: str | None, num_tokens: int, is_byte_level: bool) -> dict[str, Any]:
    tokens = [f"[PAD{index}]" for index in range(num_tokens)]
    types = [UNUSED] * num_tokens
    added = backend.get_added_tokens_decoder()
    for token, index in backend.get_vocab(with_added_tokens=True).items():
        if index >= num_tokens:
            continue
        tokens[index], types[index] = token, NORMAL
        if not is_byte_level and _BYTE.fullmatch(token):
            types[index] = BYTE
        elif not is_byte_level and token == unknown:
            types[index] = UNKNOWN
        elif index in added:
            types[index] = CONTROL if added[index].special else USER_DEFINED
    return {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}


def _scores(tokens: list[str], merges: list[tuple[str, ...]]) -> list[float]:
    """SentencePiece's: the earlier a token is merged, the higher. What is never merged has the lowest."""
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(merges):
        ranks.setdefault("".join(merge), rank)
    return [-float(ranks.get(token, len(merges))) for token in tokens]


def _named(source: TokenizerSource, num_tokens: int) -> dict[str, Any]:
    """Special tokens, and which of them encoding puts around a text."""
    backend, found = source.backend, {}
    for name, key in gguf_tokenizer.NAMES.items():
        token = source.special.get(f"{name}_token")
        index = None if token is None else backend.token_to_id(token)
        if index is not None and index < num_tokens:
            found[f"tokenizer.ggml.{key}_token_id"] = index
    ends = backend.encode("a").ids
    found["tokenizer.ggml.add_bos_token"] = ends[0] == found.get("tokenizer.ggml.bos_token_id") and len(ends) > 1
    found["tokenizer.ggml.add_eos_token"] = ends[-1] == found.get("tokenizer.ggml.eos_token_id") and len(ends) > 1
    return found


def _templates(source: TokenizerSource) -> dict[str, Any]:
    template = source.chat_template
    if isinstance(template, str):
        return {"tokenizer.chat_template": template}
    if not template:
        return {}
    named = {f"tokenizer.chat_template.{name}": text for name, text in template.items() if name != "default"}
    default = {"tokenizer.chat_template": template["default"]} if "default" in template else {}
    return default | named | {"tokenizer.chat_templates": [name for name in template if name != "default"]}
