"""The app: endpoints, each in a file of its own and named here once, behind ids, keys and errors in one form."""

import importlib
import inspect
from typing import Any

from fastapi import FastAPI
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware

from octavo import __version__, environment
from octavo.config.options import ServerOptions
from octavo.errors import ConfigError
from octavo.frontend.async_llm import AsyncLLM
from octavo.server import docs_pages, errors, openapi_document
from octavo.server.access_log import AccessLog, hidden_paths
from octavo.server.api_keys import ApiKeys, api_keys
from octavo.server.errors import UnexpectedErrors
from octavo.server.http_metrics import HttpMeter
from octavo.server.middleware import Admission, BodySizes, HeadAsGet, Load, RequestIds, RootPath
from octavo.server.response_log import ResponseLog
from octavo.server.state import ServerState

ENDPOINTS = (
    "health",
    "version",
    "metrics",
    "load",
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
    """The ASGI app. Without an engine it answers 503 until `app.state.server.attach(llm)`. Raises ConfigError for a wrong --middleware."""
    options = options or ServerOptions()
    app = FastAPI(
        title="octavo",
        version=__version__,
        redirect_slashes=False,  # a redirect would repeat whatever the Host header says
        **docs_pages.addresses(options),
    )
    app.state.server = ServerState(options)
    if llm is not None:
        app.state.server.attach(llm)
    for name in ENDPOINTS:
        endpoint = importlib.import_module(f"octavo.server.{name}")
        if not hasattr(endpoint, "is_offered") or endpoint.is_offered(options):
            app.router.routes.extend(endpoint.router.routes)
    errors.install(app, options.log_error_stack)
    openapi_document.install(app, options)
    docs_pages.install(app, options)
    _add_middleware(app, options)
    return app


def prefix(root_path: str) -> str:
    """--root-path as it is put before paths: with a slash at its start and none at its end."""
    stripped = root_path.strip("/")
    return f"/{stripped}" if stripped else ""


def routes(app: FastAPI) -> list[tuple[str, list[str]]]:
    """Path and methods of each endpoint."""
    found: dict[str, set[str]] = {}
    for route in app.router.routes:
        found.setdefault(getattr(route, "path", ""), set()).update(getattr(route, "methods", None) or ())
    return [(path, sorted(methods)) for path, methods in found.items()]


def _add_middleware(app: FastAPI, options: ServerOptions) -> None:
    """From the inside out: each is around those before it."""
    app.add_middleware(Admission, state=app.state.server)
    if limit := environment.http_max_request_body_size():
        app.add_middleware(BodySizes, limit_bytes=limit)
    if keys := api_keys(options):
        app.add_middleware(ApiKeys, keys=keys, guards_all=options.guard_all_endpoints)
    if environment.debug_log_api_server_response():
        app.add_middleware(ResponseLog)
    if options.enable_server_load_tracking:
        app.add_middleware(Load, state=app.state.server)
    app.add_middleware(HeadAsGet)
    app.add_middleware(UnexpectedErrors)
    for path in options.middleware:
        _add_foreign(app, path)
    if options.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=options.allowed_origins,
            allow_methods=options.allowed_methods,
            allow_headers=options.allowed_headers,
            allow_credentials=options.allow_credentials,
            expose_headers=["x-request-id"],
        )
    if not options.disable_uvicorn_access_log:
        app.add_middleware(AccessLog, hidden=hidden_paths(options.disable_access_log_for_endpoints))
    app.add_middleware(HttpMeter, metrics=app.state.server.http_metrics, routes=app.router.routes)
    app.add_middleware(RequestIds, is_told=options.enable_request_id_headers)
    if path := prefix(options.root_path):
        app.add_middleware(RootPath, prefix=path)


def _add_foreign(app: FastAPI, path: str) -> None:
    """A class is ASGI middleware; a coroutine function is called with the request and with what calls the rest."""
    module, _, name = path.rpartition(".")
    try:
        found: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"--middleware {path!r} cannot be imported: {error}", "pass the import path of a class or function") from None
    if inspect.isclass(found):
        middleware: Any = found
        app.add_middleware(middleware)
    elif inspect.iscoroutinefunction(found):
        app.add_middleware(BaseHTTPMiddleware, dispatch=found)
    else:
        raise ConfigError(f"--middleware {path!r} is neither a class nor a coroutine function", "pass the import path of one of these")
