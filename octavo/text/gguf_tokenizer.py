"""A tokenizer from a GGUF file: its vocabulary, merges and scores, put together as the model's own tokenizer.json would be.

Source of the keys: docs/gguf.md of the ggml project. Kinds built: byte-level BPE ("gpt2"), SentencePiece BPE ("llama"), Gemma 4's BPE
("gemma4") and WordPiece ("bert").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from octavo.checkpoint import gguf
from octavo.errors import CheckpointError, UnsupportedModelError
from octavo.text.pretokenizers import BY_NAME, PreTokenizer
from octavo.text.source import TokenizerSource, from_state

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACE = "▁"
NAMES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding", "sep": "seperator", "cls": "cls", "mask": "mask"}


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    path: Path
    metadata: dict[str, Any]
    tokens: list[str]
    types: Sequence[int]

    def get(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(f"tokenizer.ggml.{key}", default)

    def need(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise CheckpointError(f"{self.path}: the tokenizer has no {key}", "convert the model again with a current converter")
        return value

    def ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.tokens)}


def read(path: str | Path) -> TokenizerSource:
    """The tokenizer in the GGUF file at `path`.

    Raises CheckpointError if the file has none or it is incomplete, UnsupportedModelError for a kind that cannot be built.
    """
    return build(path, gguf.read_header(path).metadata)


def build(path: str | Path, metadata: dict[str, Any]) -> TokenizerSource:
    """The same of a file's metadata; path: for messages."""
    kind = metadata.get("tokenizer.ggml.model")
    if kind is None:
        raise CheckpointError(f"{path} holds no tokenizer", "pass --tokenizer with a folder that has a tokenizer.json")
    builder = _BUILDERS.get(kind)
    if builder is None:
        raise UnsupportedModelError(
            f"{path}: tokenizer kind {kind!r} cannot be built from a GGUF file (known: {', '.join(sorted(_BUILDERS))})",
            "pass --tokenizer with a folder that has a tokenizer.json",
        )
    tokens = [_valid(token) for token in metadata.get("tokenizer.ggml.tokens", [])]
    types = metadata.get("tokenizer.ggml.token_type")
    vocabulary = _Vocabulary(Path(path), metadata, tokens, [NORMAL] * len(tokens) if types is None else [int(t) for t in types])
    if not tokens or len(vocabulary.types) != len(tokens):
        raise CheckpointError(f"{path}: {len(tokens)} tokens and {len(vocabulary.types)} token types", "convert the model again")
    backend = builder(vocabulary)
    special = _name_special(vocabulary)
    _add_tokens(backend, vocabulary, special)
    return TokenizerSource(backend, special, _templates(metadata))


def _valid(token: str) -> str:
    """A token that is no valid UTF-8 (lone bytes kept as surrogates) can never be matched; it keeps its place under a name of its own."""
    try:
        token.encode("utf-8")
    except UnicodeEncodeError:
        return f"[INVALID {token.encode('utf-8', 'surrogateescape').hex()}]"
    return token


def _name_special(vocabulary: _Vocabulary) -> dict[str, str]:
    special = {}
    for name, key in NAMES.items():
        token_id = vocabulary.get(f"{key}_token_id")
        if token_id is not None and 0 <= int(token_id) < len(vocabulary.tokens):
            special[f"{name}_token"] = vocabulary.tokens[int(token_id)]
    if vocabulary.get("model") == "bert" and "cls_token" in special:
        special.setdefault("bos_token", special["cls_token"])
    return special


def _add_tokens(backend: Backend, vocabulary: _Vocabulary, special: dict[str, str]) -> None:
    """Control tokens are special; user-defined ones are matched before anything else, and are text."""
    named = set(special.values())
    controls, defined = [], []
    for token, kind in zip(vocabulary.tokens, vocabulary.types):
        if kind in (CONTROL, UNKNOWN) or token in named:
            controls.append(AddedToken(token, normalized=False, special=True))
        elif kind == USER_DEFINED:
            defined.append(AddedToken(token, normalized=False, special=False))
    backend.add_special_tokens(controls)
    backend.add_tokens(defined)


def _templates(metadata: dict[str, Any]) -> str | dict[str, str] | None:
    prefix = "tokenizer.chat_template."
    named = {key[len(prefix) :]: value for key, value in metadata.items() if key.startswith(prefix) and isinstance(value, str)}
    default = metadata.get("tokenizer.chat_template")
    return {"default": default, **named} if named and default else default


def _with_ends(backend: Backend, vocabulary: _Vocabulary, adds_bos: bool) -> Backend:
    """bos and eos around a text, as the file says, else as the kind of tokenizer does."""
    parts, ids = ["$A"], []
    for key, flag, at_start in (("bos", adds_bos, True), ("eos", False, False)):
        token_id = vocabulary.get(f"{key}_token_id")
        if token_id is None or not vocabulary.get(f"add_{key}_token", flag):
            continue
        name = vocabulary.tokens[int(token_id)]
        parts = [name, *parts] if at_start else [*parts, name]
        ids.append((name, int(token_id)))
    if ids:
        pieces = [piece if piece == "$A" else {"SpecialToken": {"id": piece, "type_id": 0}} for piece in parts]
        backend.post_processor = _template(pieces, ids)
    return backend


def _template(pieces: list[Any], ids: list[tuple[str, int]]) -> processors.PostProcessor:
    single = [{"Sequence": {"id": "A", "type_id": 0}} if piece == "$A" else piece for piece in pieces]
    special = {name: {"id": name, "ids": [token_id], "tokens": [name]} for name, token_id in ids}
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    return from_state({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special})


def _pair_merges(vocabulary: _Vocabulary) -> list[tuple[str, str]]:
    merges = []
    for merge in vocabulary.need("merges"):
        left, space, right = merge.partition(" ")
        if not space or not right:
            # a piece that is itself a space: the border is the next one
            left, space, right = merge[:1], merge[1:2], merge[2:]
        merges.append((left, right))
    return merges


def _byte_level(vocabulary: _Vocabulary) -> Backend:
    name = vocabulary.get("pre", "default")
    rule = BY_NAME.get(name)
    if rule is None:
        raise UnsupportedModelError(
            f"{vocabulary.path}: unknown pre-tokenizer {name!r} (known: {', '.join(sorted(BY_NAME))})",
            "pass --tokenizer with a folder that has a tokenizer.json",
        )
    backend = Backend(models.BPE(vocabulary.ids(), _pair_merges(vocabulary), fuse_unk=False, ignore_merges=rule.ignore_merges))
    if rule.nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = byte_level_pre_tokenizer(rule)
    backend.decoder = decoders.ByteLevel()
    return _with_ends(backend, vocabulary, rule.adds_bos)


def byte_level_pre_tokenizer(rule: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    """How texts are cut before merging, by one of pretokenizers.BY_NAME."""
    splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in rule.patterns]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _sentencepiece(vocabulary: _Vocabulary) -> Backend:
    ids = vocabulary.ids()
    backend = Backend(models.BPE(ids, _scored_merges(vocabulary, ids), unk_token=_unknown(vocabulary), fuse_unk=True, byte_fallback=True))
    prefixed = bool(vocabulary.get("add_space_prefix", True))
    replace = normalizers.Replace(" ", SPACE)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), replace]) if prefixed else replace
    backend.decoder = _space_decoder(prefixed)
    return _with_ends(backend, vocabulary, adds_bos=True)


def _space_decoder(prefixed: bool) -> decoders.Decoder:
    parts = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if prefixed else parts)


def _unknown(vocabulary: _Vocabulary) -> str | None:
    token_id = vocabulary.get("unknown_token_id")
    return None if token_id is None else vocabulary.tokens[int(token_id)]


def _scored_merges(vocabulary: _Vocabulary, ids: dict[str, int]) -> list[tuple[str, str]]:
    """SentencePiece merges the neighbours whose union scores highest: each way to cut a token in two tokens, best union first."""
    scores, types = vocabulary.need("scores"), vocabulary.types
    found = []
    for token, index in ids.items():
        if types[index] in (CONTROL, UNKNOWN, BYTE):
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                found.append((-float(scores[index]), index, cut, left, right))
    found.sort()
    return [(left, right) for _, _, _, left, right in found]


def _gemma4(vocabulary: _Vocabulary) -> Backend:
    """BPE over plain UTF-8 with ▁ for spaces; a run of newlines that is a token is that token, since merges cannot name newlines."""
    backend = Backend(
        models.BPE(vocabulary.ids(), _pair_merges(vocabulary), unk_token=_unknown(vocabulary), fuse_unk=True, byte_fallback=True)
    )
    backend.normalizer = normalizers.Replace(" ", SPACE)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\n]+|[\n]+"), behavior="isolated")
    backend.decoder = _space_decoder(prefixed=False)
    newlines = [token for token in vocabulary.tokens if len(token) > 1 and not token.strip("\n")]
    backend.add_tokens([AddedToken(token, normalized=False, special=False) for token in newlines])
    return _with_ends(backend, vocabulary, adds_bos=True)


def _wordpiece(vocabulary: _Vocabulary) -> Backend:
    """BERT: in the file a word's first piece begins with ▁, in the vocabulary of WordPiece the others begin with ##."""
    unknown, tokens = _unknown(vocabulary) or "[UNK]", []
    for token, kind in zip(vocabulary.tokens, vocabulary.types):
        plain = kind == NORMAL
        tokens.append(token[1:] if plain and token.startswith(SPACE) else f"##{token}" if plain else token)
    lowercase = bool(vocabulary.get("normalizer.lowercase", True))
    strip_accents = bool(vocabulary.get("normalizer.strip_accents", lowercase))
    backend = Backend(
        models.WordPiece({token: index for index, token in enumerate(tokens)}, unk_token=unknown, max_input_chars_per_word=100)
    )
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    cls, sep = vocabulary.get("cls_token_id"), vocabulary.get("seperator_token_id")
    if cls is not None and sep is not None:
        names = [(vocabulary.tokens[int(i)], int(i)) for i in (cls, sep)]
        first, last = ({"SpecialToken": {"id": name, "type_id": 0}} for name, _ in names)
        backend.post_processor = _template([first, "$A", last], names)
    return backend


_BUILDERS = {"gpt2": _byte_level, "llama": _sentencepiece, "gemma4": _gemma4, "bert": _wordpiece}
