"""A tokenizer from tekken.json, as Mistral ships it: byte-level BPE by rank, with the special tokens before all others.

Source: mistral-common, whose reader of this file is the reference for ids and for the versions of the prompt format.
"""

import base64
import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from octavo.errors import CheckpointError, UnsupportedModelError
from octavo.text.pieces import spell_bytes
from octavo.text.source import TokenizerSource, from_state

FILE = "tekken.json"
VERSIONS = ("v3", "v7", "v11", "v13", "v15")
# of files without a list, which are older than version 7
_FIRST = "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] [IMG] <pad>"
_FIRST += " [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]"
_NAMED = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def is_only_form(folder: str | Path) -> bool:
    """Whether a folder has a tekken.json and no tokenizer.json."""
    return (Path(folder) / FILE).is_file() and not (Path(folder) / "tokenizer.json").is_file()


def read(folder: str | Path) -> TokenizerSource:
    """The tokenizer of a folder.

    Raises CheckpointError if there is no tekken.json or it is damaged, UnsupportedModelError for a version that is not known.
    """
    file = Path(folder) / FILE
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        config = stored["config"]
        version = config["version"]
        if version not in VERSIONS:
            raise UnsupportedModelError(f"{file} is of version {version!r}", f"known: {', '.join(VERSIONS)}; or use --tokenizer-mode hf")
        special = _special(stored, config)
        backend = _backend(_ordinary(stored, config), special, config["pattern"])
    except FileNotFoundError:
        raise CheckpointError(f"{folder} holds no {FILE}", "use --tokenizer-mode hf, which reads tokenizer.json") from None
    except UnsupportedModelError:
        raise
    except Exception as fault:  # the library raises bare Exception
        raise CheckpointError(f"{file} cannot be read: {type(fault).__name__}: {fault}", "the file is damaged: fetch it again") from fault
    named = {name: text for name, text in _NAMED.items() if text in special}
    facts: dict[str, Any] = {
        "version": version,
        "thinks": "[THINK]" in special and version in ("v13", "v15"),
        "settings": stored.get("model_settings_builder"),
    }
    return TokenizerSource(backend, named, format=facts)


def _special(stored: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """The special tokens by id; ids without one have a name all the same."""
    count = config["default_num_special_tokens"]
    listed = stored.get("special_tokens")
    if listed is None:
        names = dict(enumerate(_FIRST.split()))
    else:
        names = {token["rank"]: token["token_str"] for token in listed}
    return [names.get(index, f"<SPECIAL_{index}>") for index in range(count)]


def _ordinary(stored: dict[str, Any], config: dict[str, Any]) -> list[bytes]:
    """The bytes of the other tokens, by rank."""
    count = config["default_vocab_size"] - config["default_num_special_tokens"]
    tokens = stored["vocab"][:count]
    if [token["rank"] for token in tokens] != list(range(count)):
        raise ValueError(f"the ranks of its vocabulary are not 0 .. {count - 1}")
    return [base64.b64decode(token["token_bytes"], validate=True) for token in tokens]


def _backend(ordinary: list[bytes], special: list[str], pattern: str) -> Backend:
    ranks = {token: rank for rank, token in enumerate(ordinary)}
    vocabulary = {spell_bytes(token): len(special) + rank for token, rank in ranks.items()}
    vocabulary |= {text: index for index, text in enumerate(special)}
    backend = Backend(models.BPE(vocabulary, _merges(ranks), ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in special])
    bos = special.index(_NAMED["bos_token"])
    backend.post_processor = from_state(_bos_first(special[bos], bos))
    return backend


def _merges(ranks: dict[bytes, int]) -> list[tuple[str, str]]:
    """The merges that the ranks stand for: a token is made of any two others, the lower it ranks the earlier."""
    merges: list[tuple[str, str]] = []
    for token in ranks:
        pairs = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = sorted((pair for pair in pairs if pair[0] in ranks and pair[1] in ranks), key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        merges.extend((spell_bytes(left), spell_bytes(right)) for left, right in known)
    return merges


def _bos_first(bos: str, index: int) -> dict[str, Any]:
    head = {"SpecialToken": {"id": bos, "type_id": 0}}
    single = [head, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    tokens = {bos: {"id": bos, "ids": [index], "tokens": [bos]}}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens}
