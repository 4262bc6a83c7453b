"""/docs: FastAPI's pages, whose scripts come from elsewhere; or, with --enable-offline-docs, our own, which needs nothing but itself."""

import json
from html import escape
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse

from octavo.config.options import ServerOptions

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
summary { cursor: pointer; padding: .4rem 0; } code, pre { font: 13px/1.5 ui-monospace, monospace; }
pre { background: #8881; padding: .6rem; overflow: auto; } td, th { text-align: left; padding: .1rem .8rem .1rem 0; vertical-align: top; }
.method { display: inline-block; min-width: 4rem; font-weight: 600; }
@media (prefers-color-scheme: dark) { body { background: #161616; color: #ddd; } a { color: #8ab4f8; } }
"""
_HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}


def addresses(options: ServerOptions) -> dict[str, Any]:
    """The arguments of FastAPI that say which of its own pages there are."""
    if options.disable_fastapi_docs:
        return {"openapi_url": None, "docs_url": None, "redoc_url": None}
    return {"docs_url": None, "redoc_url": None} if options.enable_offline_docs else {}


def install(app: FastAPI, options: ServerOptions) -> None:
    """Add our page where it was asked for."""
    if options.disable_fastapi_docs or not options.enable_offline_docs:
        return

    async def docs(request: Request) -> HTMLResponse:
        return HTMLResponse(page(app.openapi(), request.scope.get("root_path", "")), headers=_HEADERS)

    app.add_route("/docs", docs, include_in_schema=False)


def page(document: dict[str, Any], root_path: str = "") -> str:
    """The document as HTML without scripts."""
    info = document["info"]
    title = f"{info['title']} {info['version']}"
    parts = [
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1><p>{escape(info.get('description', ''))}</p>",
        f"<p>The same for programs: <a href='{escape(root_path)}/openapi.json'>openapi.json</a>.</p><h2>Endpoints</h2>",
    ]
    for path, operations in document["paths"].items():
        parts += [_operation(method, path, operation) for method, operation in operations.items()]
    parts.append("<h2>Schemas</h2>")
    parts += [_schema(name, schema) for name, schema in document.get("components", {}).get("schemas", {}).items()]
    return "\n".join([*parts, "</body></html>"])


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    text = [f"<details><summary><span class='method'>{method.upper()}</span> <code>{escape(path)}</code></summary>"]
    text.append(f"<p>{escape(operation.get('description', ''))}{' Needs an API key.' if operation.get('security') else ''}</p>")
    for parameter in operation.get("parameters", ()):
        text.append(f"<p><code>{escape(parameter['name'])}</code> in the {escape(parameter['in'])}</p>")
    if body := operation.get("requestBody"):
        schema = next(iter(body["content"].values()))["schema"]
        text.append("<h4>Body</h4>" + _fields(schema) if "properties" in schema else f"<h4>Body</h4><p>{_kind(schema)}</p>")
    rows = [f"<tr><td><code>{escape(s)}</code></td><td>{escape(a['description'])}</td></tr>" for s, a in operation["responses"].items()]
    return "".join([*text, "<h4>Answers</h4><table>", *rows, "</table></details>"])


def _schema(name: str, schema: dict[str, Any]) -> str:
    inside = _fields(schema) if "properties" in schema else f"<pre>{escape(json.dumps(schema, indent=1))}</pre>"
    return f"<details id='{escape(name)}'><summary><code>{escape(name)}</code></summary>{inside}</details>"


def _fields(schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    rows = []
    for name, field in schema["properties"].items():
        default = f"default <code>{escape(json.dumps(field['default']))}</code>" if "default" in field else ""
        needed = "required" if name in required else default
        rows.append(f"<tr><td><code>{escape(name)}</code></td><td>{_kind(field)}</td><td>{needed}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(_kind(each) for each in schema[key])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return escape(kind if isinstance(kind, str) else " or ".join(kind))
