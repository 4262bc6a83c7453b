"""API keys: whoever has none reaches nothing that is guarded, however the request is written."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from octavo.config.options import ServerOptions
from octavo.server.api_keys import ALWAYS_OPEN, GUARDED, ApiKeys, is_guarded
from octavo.server.app import create_app, routes
from octavo.text.tokenizer import Tokenizer
from tests.server.raw import Client, request
from tests.server.serving import in_process, on_a_socket

KEY = "a-key"


def tricks(path: str) -> Iterator[tuple[str, str]]:
    """(request target, Host) that have been taken for `path` by one program and for another one by the next."""
    tail = path.lstrip("/")
    first, slash, rest = tail.partition("/")
    percent = "".join(f"%{ord(c):02x}" for c in tail)
    upper = "".join(f"%{ord(c):02X}" for c in first)
    for target in (
        path,
        f"/{path}",
        f"//{path}",
        f"/.{path}",
        f"/x/..{path}",
        f"/health/..{path}",
        f"/health/%2e%2e{path}",
        f"/health/..%2f{tail}",
        f"/%2f{tail}",
        f"/%2e{path}",
        f"/{percent}",
        f"/{upper}{slash}{rest}",
        f"/{first}%2f{rest}",
        f"/{first}%252f{rest}",
        f"/{first}%00/{rest}",
        f"/{first};x=1{slash}{rest}",
        f"/{first}\\{rest}",
        f"/{first}./{rest}",
        f"/{first}//{rest}",
        f"{path}/",
        f"{path}.",
        f"{path}%20",
        f"{path}?/health",
        f"{path}#/health",
        f"{path};/health",
        f"/health?{path}",
        f"/{tail.upper()}",
        f"/proxy{path}",
        f"/proxy/{path}",
        f"/proxy%2f{tail}",
        f"/proxy/proxy{path}",
        f"/proxy{tail}",
        f"http://test{path}",
        f"http://test/health/..{path}",
        f"http://test/%2f{tail}",
        f"http://health{path}",
        f"http://user@health{path}",
        f"HTTP://TEST{path}",
    ):
        yield target, "test"
    for host in ("health", "test/health", "test/health?", "test#/health", "test:80/health", "health@test", "[::1]", ""):
        yield path, host


@pytest.mark.parametrize(("root_path", "guards_all"), [("", True), ("/proxy", False)])
async def test_no_way_of_writing_a_request_leads_past_the_key(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, root_path: str, guards_all: bool
) -> None:
    """All routes x all tricks x their methods. A sentinel behind the key tells whether anything guarded was reached."""
    reached: list[str] = []
    options = ServerOptions(
        api_key=[KEY], root_path=root_path, guard_all_endpoints=guards_all, disable_uvicorn_access_log=True, enable_offline_docs=True
    )
    async with on_a_socket(tokenizer, options=options) as served:
        for route in served.app.router.routes:
            monkeypatch.setattr(route, "app", _sentinel(route.path, reached))  # type: ignore[attr-defined]
        targets = 0
        for path, methods in routes(served.app):
            concrete = re.sub(r"\{[^}]*\}", "some/name", path)
            for target, host in tricks(concrete):
                for method in {*methods, "HEAD"}:
                    targets += 1
                    async with Client(served.url) as client:
                        await client.send(request(method, target, "Connection: close", host=host))
                        answer = await client.answer(has_body=method != "HEAD")
                    assert answer.status in (200, 400, 401, 404, 405), (method, target, answer)
        assert targets > 400
        guarded = [path for path in reached if is_guarded(path, guards_all)]
        assert guarded == []
        assert set(reached) >= {"/health", "/ready", "/version", "/ping"}
        # and with the key, stripped by the proxy or not, everything is reached
        reached.clear()
        for path, methods in routes(served.app):
            concrete = re.sub(r"\{[^}]*\}", "some/name", path)
            for written in {concrete, root_path + concrete}:
                response = await served.http.request(methods[0], written, headers={"authorization": f"Bearer {KEY}"})
                assert response.status_code == 200
        assert set(reached) == {path for path, _ in routes(served.app)}


def _sentinel(path: str, reached: list[str]) -> Any:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(path)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    return app


@pytest.mark.parametrize("guards_all", [False, True])
async def test_what_is_guarded(tokenizer: Tokenizer, guards_all: bool) -> None:
    options = ServerOptions(api_key=[KEY], guard_all_endpoints=guards_all)
    async with in_process(tokenizer, options=options) as served:
        for path, methods in routes(served.app):
            status = (await served.http.request(methods[0], path)).status_code
            needs_key = path not in ALWAYS_OPEN if guards_all else path.startswith(GUARDED)
            assert (status == 401) == needs_key, path
        for path in ("/v1/nothing", "/v2", "/inference/v1/x", "/cohere/v2/chat"):
            assert (await served.http.get(path)).status_code == 401
        assert (await served.http.get("/nothing")).status_code == (401 if guards_all else 404)
        assert (await served.http.options("/v1/models")).status_code == 204


def test_the_environment_s_key_counts_when_no_other_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.server.api_keys import api_keys

    monkeypatch.delenv("OCTAVO_API_KEY", raising=False)
    monkeypatch.setenv("VLLM_API_KEY", "vllm's")
    assert api_keys(ServerOptions()) == ["vllm's"]
    monkeypatch.setenv("OCTAVO_API_KEY", "ours")
    assert api_keys(ServerOptions()) == ["ours"]
    assert api_keys(ServerOptions(api_key=["a", "", "b"])) == ["a", "b"]


async def test_a_web_socket_needs_the_key_too() -> None:
    passed: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append(scope["path"])

    guard = ApiKeys(app, [KEY])
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/v1/realtime", "headers": []}
    await guard(scope, None, send)  # type: ignore[arg-type]
    assert (passed, sent) == ([], [{"type": "websocket.close", "code": 1008}])
    await guard(scope | {"headers": [(b"authorization", f"Bearer {KEY}".encode())]}, None, send)  # type: ignore[arg-type]
    assert passed == ["/v1/realtime"]


async def test_keys_are_compared_by_digest_with_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.server import api_keys

    compared: list[tuple[bytes, bytes]] = []
    original = api_keys.hmac.compare_digest
    monkeypatch.setattr(api_keys.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or original(a, b))
    app = create_app(ServerOptions(api_key=["one", "two", "three"]))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        for key, status in (("one", 503), ("three", 503), ("on", 401), ("", 401)):
            compared.clear()
            assert (await http.get("/v1/models", headers={"authorization": f"Bearer {key}"})).status_code == status
            assert len(compared) == 3
            assert {len(part) for pair in compared for part in pair} == {32}
