"""Bodies: a request's bytes, within the size that is allowed, as the endpoint's model of it."""

from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from octavo import environment
from octavo.errors import RequestError
from octavo.server.errors import BodyTooLargeError

Model = TypeVar("Model", bound=BaseModel)


async def read(request: Request, model: type[Model]) -> Model:
    """The body as `model`. Raises RequestError that names the field, or BodyTooLargeError."""
    return parsed(await receive(request), model)


async def receive(request: Request) -> bytes:
    """The body's bytes. Raises BodyTooLargeError."""
    limit = environment.http_max_request_body_size()
    data = bytearray()
    async for part in request.stream():
        data += part
        if limit and len(data) > limit:
            raise BodyTooLargeError(
                f"the request's body is larger than {limit} bytes",
                "send less, or start the server with a larger OCTAVO_HTTP_MAX_REQUEST_BODY_SIZE",
            )
    return bytes(data)


def parsed(data: bytes, model: type[Model]) -> Model:
    """A body's bytes as `model`. Raises RequestError that names the field."""
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise _first_fault(error) from None
    except RecursionError:
        raise RequestError("the body is nested too deeply") from None


def schema(model: type[BaseModel]) -> dict[str, object]:
    """For the `openapi_extra` of an endpoint that reads its body itself."""
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


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
