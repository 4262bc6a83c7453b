"""Errors as clients read them: OpenAI's body, with the status that makes their libraries do the right thing."""

import re
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette._utils import get_route_path
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.errors import EngineDeadError, GenerationError, OctavoError, OverloadedError, RequestError
from octavo.logging import get_logger

logger = get_logger(__name__)

RETRY_AFTER_S = 1
CLIENT_LEFT = 499  # nginx's status for an answer that nobody waits for; it is seen in logs only


class UnknownModelError(OctavoError, LookupError):
    """The request names a model that is not served here."""


class BodyTooLargeError(OctavoError, ValueError):
    """The request's body is larger than the server takes."""


class ErrorInfo(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: int


class ErrorBody(msgspec.Struct):
    error: ErrorInfo


_STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (RequestError, 400, "BadRequestError"),
    (UnknownModelError, 404, "NotFoundError"),
    (BodyTooLargeError, 413, "RequestTooLargeError"),
    (OverloadedError, 503, "ServiceUnavailableError"),
    (EngineDeadError, 500, "InternalServerError"),
    (GenerationError, 500, "InternalServerError"),
    (OctavoError, 500, "InternalServerError"),
)
_KINDS = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    408: "RequestTimeoutError",
    413: "RequestTooLargeError",
    414: "RequestTooLargeError",
    431: "RequestTooLargeError",
    501: "NotImplementedError",
    503: "ServiceUnavailableError",
}
# what the engine says of its own failures may name files of this machine and addresses in memory
_PRIVATE = re.compile(r"""(?<![\w./:])(?:[A-Za-z]:)?(?:[\\/][\w.@+~-]+){2,}|\b0x[0-9a-fA-F]{5,}""")


def kind_of(status: int) -> str:
    """The `type` of an error with this status."""
    return _KINDS.get(status, "BadRequestError" if status < 500 else "InternalServerError")


def info_of(error: Exception) -> ErrorInfo:
    """What a client is told of an error. One that is none of ours is told without its text, which may hold anything."""
    for kind, status, name in _STATUS:
        if isinstance(error, kind):
            parameter = "model" if isinstance(error, UnknownModelError) else getattr(error, "parameter", None)
            text = str(error) if status < 500 else _PRIVATE.sub("(...)", str(error))
            return ErrorInfo(text, name, parameter, status)
    return ErrorInfo("the server failed on this request; its log says why", "InternalServerError", None, 500)


def body_of(info: ErrorInfo) -> bytes:
    return msgspec.json.encode(ErrorBody(info))


def response_of(info: ErrorInfo) -> Response:
    """The answer that an error makes."""
    headers = {"retry-after": str(RETRY_AFTER_S)} if info.code == 503 else None
    return Response(body_of(info), info.code, headers, "application/json")


class UnexpectedErrors:
    """What an endpoint raises and nobody expected: the log has its traceback, the client an answer without it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def sending(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            if scope["type"] != "http":
                raise
            logger.exception("request %s failed", scope.get("state", {}).get("request_id", "-"))
            if not has_begun:
                await response_of(info_of(error))(scope, receive, send)


def install(app: FastAPI, log_stack: bool = False) -> None:
    """Make every error of an endpoint an answer in this form. log_stack: the log tells where each of them came from."""

    def log(info: ErrorInfo, error: Exception) -> None:
        if log_stack:
            logger.error("a request was answered with %d: %s", info.code, info.message, exc_info=error)
        elif info.code == 500:
            logger.error("a request failed: %s", error)

    async def answer(_: Request, error: Exception) -> Response:
        info = info_of(error)
        log(info, error)
        return response_of(info)

    async def http_error(request: Request, error: Any) -> Response:
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers = {"allow": _allowed(request)}
            if request.method == "OPTIONS":
                return Response(status_code=204, headers=headers)
        info = ErrorInfo(str(error.detail), kind_of(error.status_code), None, error.status_code)
        log(info, error)
        response = response_of(info)
        response.headers.update(headers)
        return response

    async def invalid(_: Request, error: Any) -> Response:
        first = error.errors()[0]
        name = ".".join(str(p) for p in first["loc"] if p not in ("body", "query", "path"))
        info = ErrorInfo(f"{name}: {first['msg']}", "BadRequestError", name or None, 400)
        log(info, error)
        return response_of(info)

    async def left(_: Request, error: Exception) -> Response:
        return Response(status_code=CLIENT_LEFT)

    app.add_exception_handler(ClientDisconnect, left)
    app.add_exception_handler(OctavoError, answer)
    app.add_exception_handler(Exception, answer)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, invalid)


def _allowed(request: Request) -> str:
    """What may be done with this path: HEAD where GET may, and OPTIONS everywhere."""
    path = get_route_path(request.scope)
    found = {"OPTIONS"}
    for route in request.app.router.routes:
        if isinstance(route, Route) and route.path_regex.match(path):
            found |= route.methods or set()
    return ", ".join(sorted(found | {"HEAD"} if "GET" in found else found))
