"""Small tekken.json files of every version: bytes, a few longer tokens, and the special tokens of the version. Plain data again."""

import base64
import json
from pathlib import Path
from typing import Any

_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_WORDS = 'he el ll lo hel hello er re at th we wea ther weather in st ty ri string ": {" "} [/ </ name ame am es et ge get'
SPECIAL = "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] [IMG] <pad> "
SPECIAL += "[IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT] "
_NEWER = "[TRANSCRIBE] [CALL_ID] [ARGS] [THINK] [/THINK] [MODEL_SETTINGS] [/MODEL_SETTINGS]"
SETTINGS = {
    "reasoning_effort": {"type": "enum", "accepts_none": True, "values": ["none", "high", "low"], "default": "none"},
    "json_schema": {"type": "json_schema", "accepts_none": False, "default": None},
}
VERSIONS = ("v3", "v7", "v11", "v13", "v15")


def contents(version: str) -> dict[str, Any]:
    """The file of a version. Version 3 lists no special tokens, as its real files do not."""
    tokens = [bytes([value]) for value in range(256)]
    tokens += [word.encode() for word in _WORDS.split()] + [b" we", b" the", b"  ", b"\n\n"]
    vocabulary = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for rank, token in enumerate(tokens)]
    config = {"pattern": _PATTERN, "num_vocab_tokens": len(tokens), "default_num_special_tokens": 40, "version": version}
    result: dict[str, Any] = {"config": config | {"default_vocab_size": 40 + len(tokens)}, "vocab": vocabulary}
    if version != "v3":
        names = (SPECIAL + _NEWER).split()
        result["special_tokens"] = [{"rank": rank, "token_str": name, "is_control": True} for rank, name in enumerate(names)]
    if version == "v15":
        result["model_settings_builder"] = SETTINGS
    return result


def write(folder: Path, version: str) -> Path:
    """A folder with nothing but the file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tekken.json").write_text(json.dumps(contents(version)))
    return folder
