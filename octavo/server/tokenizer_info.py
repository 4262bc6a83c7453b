"""/tokenizer_info: what the tokenizer is, for clients that tokenize themselves. Only with --enable-tokenizer-info-endpoint."""

import json
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from octavo.config.options import ServerOptions
from octavo.server.state import ServerState
from octavo.text.tokenizer import Tokenizer

router = APIRouter()


def is_offered(options: ServerOptions) -> bool:
    return options.enable_tokenizer_info_endpoint


@router.get("/tokenizer_info")
async def tokenizer_info(request: Request) -> Response:
    """tokenizer_config.json where there is one, and what is in effect."""
    state: ServerState = request.app.state.server
    llm = state.engine()
    tokenizer = llm.get_tokenizer()
    stored = _stored(Path(llm.config.model.tokenizer_path) / "tokenizer_config.json")
    return JSONResponse(stored | _in_effect(tokenizer, llm.facts.max_model_len, str(stored.get("tokenizer_class") or "Tokenizer")))


def _stored(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a .gguf file, or a tokenizer that needs no such file
        return {}
    return found if isinstance(found, dict) else {}


def _in_effect(tokenizer: Tokenizer, max_model_len: int, kind: str) -> dict[str, Any]:
    return {
        "tokenizer_class": kind,
        "chat_template": tokenizer.chat_template,
        "vocab_size": len(tokenizer),
        "max_model_len": max_model_len,
        "adds_bos": tokenizer.adds_bos,
        **tokenizer.special_tokens_map,
        "added_tokens_decoder": {str(index): tokenizer.id_to_token(index) for index in tokenizer.all_special_ids},
    }
