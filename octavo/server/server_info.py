"""/server_info: the configuration in effect. A development endpoint: only with OCTAVO_SERVER_DEV_MODE=1."""

import platform
from typing import Any, Literal

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from octavo import __version__, environment
from octavo.config.options import ServerOptions
from octavo.server.state import ServerState

router = APIRouter()


def is_offered(_: ServerOptions) -> bool:
    return environment.server_dev_mode()


@router.get("/server_info")
async def server_info(request: Request, config_format: Literal["text", "json"] = "text") -> Response:
    """Configuration (as text or as JSON), the environment variables that were read, and the machine. Keys are vLLM's."""
    state: ServerState = request.app.state.server
    llm = state.engine()
    config: Any = msgspec.to_builtins(llm.config)
    if config_format == "text":
        config = "\n".join(f"{name}: {value}" for name, value in config.items())
    machine = {"octavo": __version__, "python": platform.python_version(), "platform": platform.platform(), "device": llm.facts.device}
    return JSONResponse({"vllm_config": config, "vllm_env": environment.shown(), "system_env": machine})
