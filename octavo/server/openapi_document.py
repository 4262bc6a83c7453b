"""The OpenAPI document: what each endpoint takes and answers, errors and keys included, made from the endpoints themselves."""

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from octavo.config.options import ServerOptions
from octavo.server.api_keys import api_keys, is_guarded
from octavo.server.errors import RETRY_AFTER_S, ErrorBody

_REFERENCE = "#/components/schemas/"
_ERROR = {"application/json": {"schema": {"$ref": f"{_REFERENCE}ErrorBody"}}}
# of each server-sent event
_EVENT = {
    "type": "object",
    "properties": {"data": {"type": "string", "description": "A chunk as JSON; the last is [DONE]."}},
    "required": ["data"],
}
_EVENTS = {"text/event-stream": {"schema": _EVENT}}
_SAYS = {
    400: "The request is wrong; `param` names the field.",
    401: "No valid API key.",
    404: "There is no such model.",
    413: "The body is too large.",
    500: "The server or its engine failed.",
    503: "The server is starting, stopping or full; the same request may succeed later.",
}
_METHODS = ("get", "post", "put", "delete", "patch")


def install(app: FastAPI, options: ServerOptions) -> None:
    """Make `app.openapi()` give the document."""

    def openapi() -> dict[str, Any]:
        if not app.openapi_schema:
            app.openapi_schema = document(app, options)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def document(app: FastAPI, options: ServerOptions) -> dict[str, Any]:
    result = get_openapi(
        title=app.title, version=app.version, description="OpenAI's API, with vLLM's fields beside it.", routes=app.router.routes
    )
    schemas = result.setdefault("components", {}).setdefault("schemas", {})
    has_keys = bool(api_keys(options))
    if has_keys:
        result["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path, operations in result["paths"].items():
        needs_key = has_keys and is_guarded(path, options.guard_all_endpoints)
        for method in _METHODS:
            if method in operations:
                _complete(path, operations[method], needs_key)
    _, own = msgspec.json.schema_components([ErrorBody], ref_template=_REFERENCE + "{name}")
    schemas |= own
    hoisted: dict[str, Any] = {}
    _hoist(result["paths"], hoisted)
    schemas |= hoisted
    for unused in ("HTTPValidationError", "ValidationError"):  # ours are 400 and of another form
        schemas.pop(unused, None)
    return result


def _complete(path: str, operation: dict[str, Any], needs_key: bool) -> None:
    """Add what every endpoint of this kind may answer."""
    responses = operation["responses"]
    responses.pop("422", None)
    if "stream" in operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {}).get("properties", {}):
        responses["200"]["content"] |= _EVENTS
    statuses = {500, 503}
    if "requestBody" in operation:
        statuses |= {400, 404, 413}
    if operation.get("parameters"):
        statuses |= {400, 404}
    if needs_key:
        statuses.add(401)
        operation["security"] = [{"key": []}]
    for status in statuses:
        answer: dict[str, Any] = {"description": _SAYS[status], "content": _ERROR}
        if status == 503:
            answer["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": f"Seconds, {RETRY_AFTER_S}."}}
        responses.setdefault(str(status), answer)
    responses.update({status: responses.pop(status) for status in sorted(responses)})


def _hoist(node: Any, into: dict[str, Any]) -> None:
    """Move the definitions that a schema brings to where the whole document looks for them."""
    if isinstance(node, list):
        for each in node:
            _hoist(each, into)
    elif isinstance(node, dict):
        for name, definition in node.pop("$defs", {}).items():
            _hoist(definition, into)
            into[name] = definition
        reference = node.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/$defs/"):
            node["$ref"] = _REFERENCE + reference.removeprefix("#/$defs/")
        for each in node.values():
            _hoist(each, into)
