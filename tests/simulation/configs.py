"""Configurations for engines without a model: a vocabulary of a few tokens, short blocks and short contexts."""

from typing import Any

from octavo.config.config import Config
from tests import configs

VOCABULARY = 11
EOS = 0

_ECHO: dict[str, Any] = {
    "name": "echo",
    "model_type": "echo",
    "hf_config": {"max_position_embeddings": 256},
    "max_model_len": 64,
    "vocab_size": VOCABULARY,
    "eos_token_ids": [EOS],
    "block_size": 4,
    "hash_algorithm": "xxhash",
    "overlapped": False,
}


def make_config(**values: Any) -> Config:
    """A configuration with these fields of any of its parts changed."""
    return configs.make_config(**{**_ECHO, **values})
