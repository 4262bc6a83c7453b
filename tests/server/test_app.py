"""The app around the endpoints: what it says of itself, foreign middleware, pages of other origins, counting, errors that tell nothing."""

import json
import re
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.config.options import ServerOptions
from octavo.errors import ConfigError, EngineDeadError, GenerationError
from octavo.server.app import create_app, routes
from octavo.server.body import MOST_CONTAINERS
from octavo.server.errors import info_of, kind_of
from octavo.text.tokenizer import Tokenizer
from tests.server.serving import in_process

MESSAGES = [{"role": "user", "content": "hi"}]
PAGE = {"origin": "https://page.example"}


class Doubling:
    """Middleware for the test: a class."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/doubled":
            scope["path"] = "/v1/models"
        await self.app(scope, receive, send)


async def naming(request: Request, call_next: Any) -> Response:
    """Middleware for the test: a function."""
    response: Response = await call_next(request)
    response.headers["x-named"] = request.url.path
    return response


not_middleware = 5


async def test_foreign_middleware_is_a_class_or_a_function_and_comes_before_the_key(tokenizer: Tokenizer) -> None:
    options = ServerOptions(middleware=[f"{__name__}.Doubling", f"{__name__}.naming"], api_key=["k"])
    async with in_process(tokenizer, options=options) as served:
        assert (await served.http.get("/health")).headers["x-named"] == "/health"
        assert (await served.http.get("/doubled")).status_code == 401
        answer = await served.http.get("/doubled", headers={"authorization": "Bearer k"})
        assert answer.json()["object"] == "list"
    for wrong in ("nothing", "no.such.module", f"{__name__}.missing", f"{__name__}.not_middleware"):
        with pytest.raises(ConfigError, match=re.escape(wrong)):
            create_app(ServerOptions(middleware=[wrong]))


async def test_pages_of_other_origins_may_call_when_they_are_named(tokenizer: Tokenizer) -> None:
    preflight = PAGE | {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    async with in_process(tokenizer) as served:
        assert "access-control-allow-origin" not in (await served.http.get("/health", headers=PAGE)).headers
        assert "access-control-allow-origin" not in (await served.http.options("/v1/chat/completions", headers=preflight)).headers
    options = ServerOptions(allowed_origins=["https://page.example"], allow_credentials=True, api_key=["k"])
    async with in_process(tokenizer, options=options) as served:
        asked = await served.http.options("/v1/chat/completions", headers=preflight)
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == "https://page.example"
        refused = await served.http.get("/v1/models", headers=PAGE)
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://page.example")
        assert "access-control-allow-origin" not in (await served.http.get("/health", headers={"origin": "https://other"})).headers


@pytest.mark.parametrize("is_tracked", [False, True])
async def test_the_load_is_the_number_of_requests_in_work(tokenizer: Tokenizer, is_tracked: bool) -> None:
    import asyncio

    async with in_process(tokenizer, options=ServerOptions(enable_server_load_tracking=is_tracked)) as served:
        assert (await served.http.get("/load")).json() == {"server_load": 0}
        served.client.gate.clear()
        asking = [asyncio.ensure_future(served.post("/v1/chat/completions", messages=MESSAGES)) for _ in range(3)]
        while len(served.engine.running) < 3:
            await asyncio.sleep(0)
        assert (await served.http.get("/load")).json() == {"server_load": 3 if is_tracked else 0}
        served.client.gate.set()
        await asyncio.gather(*asking)
        assert (await served.http.get("/load")).json() == {"server_load": 0}


async def test_ping_is_health(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        assert [(await served.http.request(m, "/ping")).status_code for m in ("GET", "POST")] == [200, 200]
        served.client.kill()
        await served.llm.dead.wait()
        assert [(await served.http.request(m, "/ping")).status_code for m in ("GET", "POST")] == [503, 503]


async def test_H7_a_full_queue_refuses_at_once_without_reading(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    from octavo.server import body

    read: list[int] = []
    original = body._check_shape
    monkeypatch.setattr(body, "_check_shape", lambda data: read.append(len(data)) or original(data))
    async with in_process(tokenizer, max_num_seqs=1, max_num_queued_requests=2) as served:
        served.client.gate.clear()
        asking = [asyncio.ensure_future(served.post("/v1/chat/completions", messages=MESSAGES)) for _ in range(3)]
        while len(served.engine.running) < 3:
            await asyncio.sleep(0)
        read.clear()
        refused = await asyncio.gather(*(served.post("/v1/completions", prompt="x" * 1000) for _ in range(500)))
        assert {(answer.status_code, answer.headers["retry-after"]) for answer in refused} == {(503, "1")}
        assert refused[0].json()["error"]["type"] == "ServiceUnavailableError"
        assert read == []
        assert (await served.http.get("/v1/models")).status_code == 200
        served.client.gate.set()
        assert [answer.status_code for answer in await asyncio.gather(*asking)] == [200] * 3
        assert (await served.post("/v1/completions", prompt="x")).status_code == 200


# --- errors


@pytest.mark.parametrize("error", [GenerationError, EngineDeadError])
def test_errors_of_ours_name_no_file_and_no_address(error: type[Exception]) -> None:
    text = "OSError: /home/user/models/x.bin, C:\\Users\\me\\x.py and <Thing object at 0x7f12ab34cd56>; 3/4 of 1/2 at a/b, process 12"
    said = info_of(error(text)).message
    assert "home" not in said
    assert "Users" not in said
    assert "0x7f" not in said
    assert "3/4 of 1/2" in said
    assert "process 12" in said


def test_each_status_has_its_type() -> None:
    assert [kind_of(s) for s in (400, 404, 409, 503, 500, 502)] == [
        "BadRequestError",
        "NotFoundError",
        "BadRequestError",
        "ServiceUnavailableError",
        "InternalServerError",
        "InternalServerError",
    ]


async def test_where_an_error_came_from_is_logged_when_it_is_asked_for(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import logging

    monkeypatch.setattr(logging.getLogger("octavo"), "propagate", True)
    for options, has_stack in ((ServerOptions(), False), (ServerOptions(log_error_stack=True), True)):
        caplog.clear()
        async with in_process(tokenizer, options=options) as served:
            assert (await served.post("/v1/chat/completions", messages=[])).status_code == 400
            assert (await served.http.get("/nothing")).status_code == 404
        assert (sum(record.exc_info is not None for record in caplog.records) == 2) == has_stack


async def test_an_unexpected_error_is_logged_once_with_its_request_and_answered_without_its_text(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import logging

    monkeypatch.setattr(logging.getLogger("octavo"), "propagate", True)
    async with in_process(tokenizer) as served:
        monkeypatch.setattr(served.llm, "add_request", None)
        answer = await served.http.post("/v1/completions", json={"prompt": "x"}, headers={"x-request-id": "mine"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (500, "mine")
    assert "NoneType" not in answer.text
    tracebacks = [record for record in caplog.records if record.exc_info]
    assert [record.getMessage() for record in tracebacks] == ["request mine failed"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{:", 400),
        (b"", 400),
        (b"[]", 400),
        (b"null", 400),
        (b"[" * 10_000_000, 400),
        (b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
        (b'{"prompt":' + b"[[1]," * 300_000 + b"[1]" + b"]" * 300_000 + b"}", 400),
        (b'{"messages":[{"role":"user","content":"\xff"}]}', 400),
        (b'{"messages":[{"role":"user","content":"' + b"[{:" * 10 + b'"}]}', 200),
    ],
)
async def test_F7_a_body_that_is_no_json_object_is_refused(tokenizer: Tokenizer, body: bytes, status: int) -> None:
    async with in_process(tokenizer) as served:
        answer = await served.http.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == status
        if status != 200:
            assert answer.json()["error"]["type"] == "BadRequestError"


async def test_a_body_of_too_many_lists_is_refused_before_it_is_made_into_any(tokenizer: Tokenizer) -> None:
    """Brackets in a text are text."""
    async with in_process(tokenizer, max_model_len=2_000_000) as served:
        for _ in range(2):
            refused = await served.post("/v1/completions", prompt=[[1]] * MOST_CONTAINERS)
            assert refused.status_code == 400
            assert "lists and objects" in refused.json()["error"]["message"]
        answer = await served.post("/v1/completions", prompt='[{"\\' * MOST_CONTAINERS, max_tokens=1)
        assert answer.status_code == 200


# --- what the app says of itself


def documents() -> dict[str, Any]:
    app = create_app(ServerOptions(api_key=["k"]))
    found: dict[str, Any] = json.loads(json.dumps(app.openapi()))
    return found


def test_the_document_tells_bodies_answers_and_keys() -> None:
    document = documents()
    assert document["components"]["securitySchemes"] == {"key": {"type": "http", "scheme": "bearer"}}
    described = {path for path, _ in routes(create_app()) if path not in ("/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect")}
    assert {re.sub(r"\{(\w+):path\}", r"{\1}", path) for path in described} == set(document["paths"])
    for path, operations in document["paths"].items():
        for operation in operations.values():
            answers = operation["responses"]
            assert {"200", "500", "503"} <= set(answers), path
            assert ("401" in answers) == path.startswith("/v1") == ("security" in operation)
            assert "422" not in answers
            assert operation.get("description"), path
            if "requestBody" in operation:
                assert {"400", "404", "413"} <= set(answers), path
            for status, answer in answers.items():
                if status >= "400":
                    assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/ErrorBody"}
    operations = [operation for each in document["paths"].values() for operation in each.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)


def test_every_reference_in_the_document_leads_somewhere() -> None:
    document = documents()

    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            return [v for k, v in node.items() if k == "$ref"] + [r for v in node.values() for r in references(v)]
        return [r for v in node for r in references(v)] if isinstance(node, list) else []

    found = references(document)
    assert found
    for reference in found:
        node = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
    assert "$defs" not in json.dumps(document)


async def test_the_pages(tokenizer: Tokenizer) -> None:
    async def statuses(options: ServerOptions) -> dict[str, int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(create_app(options)), base_url="http://test") as http:
            return {path: (await http.get(path)).status_code for path in ("/docs", "/redoc", "/openapi.json")}

    assert await statuses(ServerOptions()) == {"/docs": 200, "/redoc": 200, "/openapi.json": 200}
    assert await statuses(ServerOptions(disable_fastapi_docs=True)) == {"/docs": 404, "/redoc": 404, "/openapi.json": 404}
    assert await statuses(ServerOptions(enable_offline_docs=True)) == {"/docs": 200, "/redoc": 404, "/openapi.json": 200}
    app = create_app(ServerOptions(enable_offline_docs=True, root_path="proxy/"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        page = await http.get("/docs")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "<script" not in page.text
    assert not re.findall(r"(?:src|href)=['\"]?(?:https?:)?//", page.text)
    assert "/proxy/openapi.json" in page.text
    for path, _ in routes(app):
        assert path in ("/docs", "/openapi.json") or re.sub(r"\{(\w+):path\}", r"{\1}", path) in page.text


def test_text_of_the_document_cannot_become_markup() -> None:
    from octavo.server.docs_pages import page

    evil = "<script>alert(1)</script>"
    document = {
        "info": {"title": evil, "version": "1", "description": evil},
        "paths": {f"/{evil}": {"get": {"description": evil, "responses": {"200": {"description": evil}}, "parameters": []}}},
        "components": {"schemas": {evil: {"properties": {evil: {"type": evil, "default": evil}}}, "x": {"enum": [evil]}}},
    }
    assert "<script" not in page(document)
