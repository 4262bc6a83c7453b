"""Bodies: a request's bytes, within the size that is allowed, as the endpoint's model of it."""

import re
from typing import TypeVar

import msgspec
from fastapi import Request
from pydantic import BaseModel, ValidationError

from octavo.errors import RequestError

MOST_CONTAINERS = 200_000
MOST_MEMBERS = 500_000
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)

Model = TypeVar("Model", bound=BaseModel)


async def read(request: Request, model: type[Model]) -> Model:
    """The body as `model`. Raises RequestError that names the field, BodyTooLargeError as the middleware finds it, or ClientDisconnect."""
    return parsed(await receive(request), model)


async def receive(request: Request) -> bytes:
    """The body's bytes. Raises BodyTooLargeError as the middleware finds it, or ClientDisconnect."""
    data = bytearray()
    async for part in request.stream():
        data += part
    return bytes(data)


def parsed(data: bytes, model: type[Model]) -> Model:
    """A body's bytes as `model`. Raises RequestError that names the field."""
    _check_shape(data)
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise _first_fault(error) from None
    except RecursionError:
        raise RequestError("the body is nested too deeply") from None


def schema(
    model: type[BaseModel], reply: type[msgspec.Struct] | None = None, chunk: type[msgspec.Struct] | None = None
) -> dict[str, object]:
    """For the `openapi_extra` of an endpoint that reads its body itself. reply: what it answers; chunk: what a stream's events hold."""
    described: dict[str, object] = {
        "requestBody": {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}
    }
    content: dict[str, object] = {}
    if reply is not None:
        content["application/json"] = {"schema": msgspec.json.schema(reply)}
    if chunk is not None:
        # one event is `data: ` and this as JSON; the last one holds [DONE]
        content["text/event-stream"] = {"schema": {"type": "string"}, "x-event-data": msgspec.json.schema(chunk)}
    if content:
        described["responses"] = {"200": {"description": "The answer, whole or in pieces.", "content": content}}
    return described


def _check_shape(data: bytes) -> None:
    """Nothing else runs while a body is made into values, which takes a second for a million lists; a text of any length takes no time."""
    if data.count(b"[") + data.count(b"{") > MOST_CONTAINERS or data.count(b":") > MOST_MEMBERS:
        bare = _STRING.sub(b"", data)  # brackets in texts do not count
        for count, most, what in (
            (bare.count(b"[") + bare.count(b"{"), MOST_CONTAINERS, "lists and objects"),
            (bare.count(b":"), MOST_MEMBERS, "members of objects"),
        ):
            if count > most:
                raise RequestError(f"the body has {count} {what}; the server takes at most {most}")


def _first_fault(error: ValidationError) -> RequestError:
    first = error.errors(include_url=False, include_input=False)[0]
    if isinstance(ours := first.get("ctx", {}).get("error"), RequestError):
        return ours
    path = [str(p) for p in first["loc"]]
    if first["type"] == "json_invalid":
        return RequestError(f"the body is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}")
    message = first["msg"]
    if not path:
        return RequestError(f"the body must be a JSON object: {message}" if first["type"] == "model_type" else message)
    return RequestError(f"{'.'.join(path)}: {message}", parameter=path[0])
