"""A tokenizer from a Hugging Face folder: tokenizer.json, with what the small files beside it add.

The small files say which tokens are bos, eos and so on, whether bos is put first, and hold the chat template.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from octavo.errors import CheckpointError
from octavo.text.source import TokenizerSource, from_state

_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def read(folder: str | Path) -> TokenizerSource:
    """The tokenizer of a folder. Raises CheckpointError if there is no tokenizer.json, or a file that cannot be read."""
    folder = Path(folder)
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise CheckpointError(
            f"{folder} holds no tokenizer.json",
            "pass --tokenizer with a folder or a .gguf file that has one, or --skip-tokenizer-init to work with token ids",
        )
    try:
        backend = Backend.from_file(str(file))
    except Exception as fault:  # the library raises bare Exception
        raise CheckpointError(f"{file} cannot be read: {fault}", "the file is damaged, or of a newer kind: fetch it again") from fault
    backend.no_truncation()
    backend.no_padding()
    config = {**_json(folder / "special_tokens_map.json"), **_json(folder / "tokenizer_config.json")}
    special = {name: text for name in _NAMES if (text := _text(config.get(name))) is not None}
    _add_configured(backend, config)
    extra = _mark_special(backend, special, config)
    _settle_bos(backend, special, config)
    return TokenizerSource(backend, special, _templates(folder, config), extra)


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise CheckpointError(f"{file} cannot be read: {fault}", "the file is damaged: fetch it again") from fault
    return value if isinstance(value, dict) else {}


def _text(token: Any) -> str | None:
    """A token as the files write it: a string, or an object with its content."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) and token else None


def _add_configured(backend: Backend, config: dict[str, Any]) -> None:
    """Tokens that only tokenizer_config.json knows, where they continue the vocabulary without a gap."""
    known = backend.get_vocab(with_added_tokens=True)
    decoder = config.get("added_tokens_decoder")
    for key, entry in sorted((decoder if isinstance(decoder, dict) else {}).items(), key=lambda item: int(item[0])):
        content = _text(entry)
        if content is None or content in known or int(key) != backend.get_vocab_size(with_added_tokens=True):
            continue
        options = {name: bool(entry[name]) for name in ("lstrip", "rstrip", "normalized", "single_word") if name in entry}
        token = AddedToken(content, special=bool(entry.get("special")), **options)
        (backend.add_special_tokens if entry.get("special") else backend.add_tokens)([token])


def _mark_special(backend: Backend, special: dict[str, str], config: dict[str, Any]) -> list[str]:
    """Named tokens are special even where tokenizer.json forgets to say so. Returns the additional ones."""
    extra = config.get("additional_special_tokens") or config.get("extra_special_tokens") or []
    texts = extra.values() if isinstance(extra, dict) else extra if isinstance(extra, list) else []
    additional = [text for token in texts if (text := _text(token)) is not None]
    marked = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    wanted = [text for text in [*special.values(), *additional] if text not in marked and backend.token_to_id(text) is not None]
    if wanted:
        backend.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in dict.fromkeys(wanted)])
    return additional


def _settle_bos(backend: Backend, special: dict[str, str], config: dict[str, Any]) -> None:
    """add_bos_token, where the configuration says it outright, against what tokenizer.json does."""
    wanted, bos = config.get("add_bos_token"), special.get("bos_token")
    bos_id = None if bos is None else backend.token_to_id(bos)
    if not isinstance(wanted, bool) or bos_id is None or (backend.encode("a").ids[:1] == [bos_id]) == wanted:
        return
    if not wanted:
        backend.post_processor = None
        return
    state = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [
            {"SpecialToken": {"id": bos, "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}},
    }
    backend.post_processor = from_state(state)


def _templates(folder: Path, config: dict[str, Any]) -> str | dict[str, str] | None:
    """chat_template.jinja, else chat_template.json, else the configuration; named ones from additional_chat_templates/*.jinja."""
    template = config.get("chat_template")
    if isinstance(template, list):
        template = {str(entry["name"]): str(entry["template"]) for entry in template if isinstance(entry, dict) and "template" in entry}
    if from_json := _json(folder / "chat_template.json").get("chat_template"):
        template = from_json
    if (file := folder / "chat_template.jinja").is_file():
        template = file.read_text(encoding="utf-8")
    named = {file.stem: file.read_text(encoding="utf-8") for file in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if named:
        return {**(template if isinstance(template, dict) else {"default": template} if template else {}), **named}
    return template if isinstance(template, (str, dict)) and template else None
