"""The app: endpoints, each in a file of its own and named here once, behind ids, keys and errors in one form."""

import importlib

from fastapi import FastAPI

from octavo import __version__, environment
from octavo.config.options import ServerOptions
from octavo.frontend.async_llm import AsyncLLM
from octavo.server import errors
from octavo.server.http_metrics import HttpMeter
from octavo.server.middleware import ApiKeys, RequestIds
from octavo.server.response_log import ResponseLog
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
    endpoints = [importlib.import_module(f"octavo.server.{name}") for name in ENDPOINTS]
    routers = [each.router for each in endpoints if not hasattr(each, "is_offered") or each.is_offered(options)]
    for router in routers:
        app.include_router(router)
    errors.install(app)
    if keys := api_keys(options):
        app.add_middleware(ApiKeys, keys=keys)
    if environment.debug_log_api_server_response():
        app.add_middleware(ResponseLog)
    app.add_middleware(RequestIds)
    routes = [*app.routes, *(route for router in routers for route in router.routes)]
    app.add_middleware(HttpMeter, metrics=app.state.server.http_metrics, routes=routes)
    return app


def api_keys(options: ServerOptions) -> list[str]:
    """The keys that clients must send, from the options or else from the environment; none = open to all."""
    if options.api_key:
        return [key for key in options.api_key if key]
    return environment.api_keys()
