"""The app: endpoints, each in a file of its own and named here once, behind ids, keys and errors in one form."""

import importlib

from fastapi import FastAPI

from octavo import __version__, environment
from octavo.config.options import ServerOptions
from octavo.frontend.async_llm import AsyncLLM
from octavo.server import errors
from octavo.server.middleware import ApiKeys, RequestIds
from octavo.server.state import ServerState

ENDPOINTS = (
    "health",
    "version",
    "metrics",
    "openai.models",
    "openai.chat",
    "openai.completions",
    "openai.batch",
    "tokenize",
    "tokenizer_info",
    "invocations",
    "server_info",
    "cache_control",
)


def create_app(options: ServerOptions | None = None, llm: AsyncLLM | None = None) -> FastAPI:
    """The ASGI app. Without an engine it answers 503 until `app.state.server.attach(llm)`."""
    options = options or ServerOptions()
    app = FastAPI(title="octavo", version=__version__, root_path=options.root_path)
    app.state.server = ServerState(options)
    if llm is not None:
        app.state.server.attach(llm)
    for name in ENDPOINTS:
        endpoint = importlib.import_module(f"octavo.server.{name}")
        if not hasattr(endpoint, "is_offered") or endpoint.is_offered(options):
            app.include_router(endpoint.router)
    errors.install(app)
    if keys := api_keys(options):
        app.add_middleware(ApiKeys, keys=keys)
    app.add_middleware(RequestIds)
    return app


def api_keys(options: ServerOptions) -> list[str]:
    """The keys that clients must send, from the options or else from the environment; none = open to all."""
    if options.api_key:
        return [key for key in options.api_key if key]
    own = environment.api_key()
    return [own] if own else []
