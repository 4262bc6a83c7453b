"""Errors as clients read them: OpenAI's body, with the status that makes their libraries do the right thing."""

from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

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
_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    413: "RequestTooLargeError",
}


def info_of(error: Exception) -> ErrorInfo:
    """What a client is told of an error. One that is none of ours is told without its text, which may hold anything."""
    for kind, status, name in _STATUS:
        if isinstance(error, kind):
            parameter = "model" if isinstance(error, UnknownModelError) else getattr(error, "parameter", None)
            return ErrorInfo(str(error), name, parameter, status)
    return ErrorInfo("the server failed on this request; its log says why", "InternalServerError", None, 500)


def body_of(info: ErrorInfo) -> bytes:
    return msgspec.json.encode(ErrorBody(info))


def response_of(info: ErrorInfo) -> Response:
    """The answer that an error makes."""
    headers = {"retry-after": str(RETRY_AFTER_S)} if info.code == 503 else None
    return Response(body_of(info), info.code, headers, "application/json")


def install(app: FastAPI) -> None:
    """Make every error of an endpoint an answer in this form."""

    async def answer(_: Request, error: Exception) -> Response:
        info = info_of(error)
        if info.code == 500 and isinstance(error, OctavoError):  # of any other error the HTTP server logs the traceback
            logger.error("a request failed: %s", error)
        return response_of(info)

    async def http_error(_: Request, error: Any) -> Response:
        kind = _TYPES.get(error.status_code, "BadRequestError" if error.status_code < 500 else "InternalServerError")
        response = response_of(ErrorInfo(str(error.detail), kind, None, error.status_code))
        response.headers.update(error.headers or {})
        return response

    async def invalid(_: Request, error: Any) -> Response:
        first = error.errors()[0]
        name = ".".join(str(p) for p in first["loc"] if p not in ("body", "query", "path"))
        return response_of(ErrorInfo(f"{name}: {first['msg']}", "BadRequestError", name or None, 400))

    async def left(_: Request, error: Exception) -> Response:
        return Response(status_code=CLIENT_LEFT)

    app.add_exception_handler(ClientDisconnect, left)
    app.add_exception_handler(OctavoError, answer)
    app.add_exception_handler(Exception, answer)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, invalid)
