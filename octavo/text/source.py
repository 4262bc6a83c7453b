"""What a Tokenizer is made of, wherever it was read from."""

import json
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import processors


@dataclass(slots=True)
class TokenizerSource:
    """special: "bos_token" and the like -> text. chat_template: one, or several by name. format: what the file says of prompts."""

    backend: Backend
    special: dict[str, str]
    chat_template: str | dict[str, str] | None = None
    extra_special: list[str] = field(default_factory=list)
    format: dict[str, Any] = field(default_factory=dict)


def from_state(state: dict[str, Any]) -> processors.PostProcessor:
    """A post-processor from its JSON form: in the short form, a token whose text has a colon or a dollar sign would be misread."""
    shell = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}, "post_processor": state}
    made: processors.PostProcessor = Backend.from_str(json.dumps(shell)).post_processor
    return made
