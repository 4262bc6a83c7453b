"""The client against a stub on a real socket: every way in which an answer can go, or go wrong."""

import asyncio
import re
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from octavo.bench.http_client import Address, Client
from octavo.bench.load import Outcome, Run, Sender, run
from octavo.bench.options import ServeOptions
from octavo.bench.sample import Sample
from octavo.errors import ConfigError
from tests.bench.stub_server import StubServer


def send(stub: StubServer, *prompts: str, count: int = 4, url: str | None = None, **changes: Any) -> list[Outcome]:
    return asyncio.run(_run(stub, [Sample(p, 3, count) for p in prompts], url, **changes)).outcomes


async def _run(stub: StubServer, samples: list[Sample], url: str | None = None, **changes: Any) -> Run:
    client = Client(Address(url or f"http://127.0.0.1:{stub.port}", changes.get("insecure", False)), {"X-Own": "1"})
    options = ServeOptions(**({"max_concurrency": 1, "request_id_prefix": "id-"} | changes))
    try:
        return await run(Sender(client, options, "stub"), samples, [0.0] * len(samples), options)
    finally:
        await client.close()


@pytest.mark.parametrize("backend", ["openai", "vllm", "openai-chat"])
@pytest.mark.parametrize("kind", ["plain", "comments", "torn", "unframed"])
def test_whole_answers(stub: StubServer, backend: str, kind: str) -> None:
    outcomes = send(stub, f"{kind} a", f"{kind} b", backend=backend)
    for outcome in outcomes:
        assert outcome.error == ""
        assert outcome.text == " 0 1 2 3"
        assert (outcome.num_prompt, outcome.num_output) == (7, 4)
        assert len(outcome.itl_s) == 3  # neither the role, nor the end, nor the usage is a token
        assert 0 < outcome.ttft_s <= outcome.latency_s
        assert outcome.latency_s == pytest.approx(outcome.ttft_s + sum(outcome.itl_s))
    assert stub.num_connections == (2 if kind == "unframed" else 1)  # kept open


def test_several_tokens_in_a_chunk(stub: StubServer) -> None:
    (outcome,) = send(stub, "several", count=9)
    assert outcome.num_output == 9
    assert outcome.text == " 0 1 2 a b c a b c"
    assert len(outcome.itl_s) == 4


def test_what_the_server_does_not_count(stub: StubServer) -> None:
    (outcome,) = send(stub, "uncounted")
    assert outcome.error == ""
    assert (outcome.num_prompt, outcome.num_output) == (3, None)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("error", "HTTP 500: out of luck"),
        ("overload", "HTTP 503: busy"),
        ("hangup", "closed the connection without an answer"),
        ("broken", "broke off in the middle"),
        ("faulty", "error in the stream: row fell over"),
        ("garbage", "cannot be read"),
        ("endless", r"without \[DONE\]"),
        ("stall", "no whole answer within 0.3 s"),
    ],
)
def test_answers_that_fail(stub: StubServer, kind: str, said: str) -> None:
    """The others go on, over the same connection where it is still good."""
    limit = {"request_timeout_sec": 0.3} if kind == "stall" else {}
    before, failed, after = send(stub, "plain", kind, "plain", **limit)
    assert not before.error
    assert not after.error
    assert re.search(said, failed.error), failed.error


def test_nobody_listens(stub: StubServer) -> None:
    (outcome,) = send(stub, "plain", url="http://127.0.0.1:1")
    assert outcome.error.startswith("no server answers at http://127.0.0.1:1: ")


def test_what_is_sent(stub: StubServer) -> None:
    send(
        stub,
        "plain",
        temperature=0.0,
        top_k=5,
        logprobs=2,
        ignore_eos=True,
        repetition_penalty=1.5,
        extra_body={"seed": 4, "top_k": 6},
    )
    assert stub.bodies == [
        {
            "model": "stub",
            "prompt": "plain",
            "max_tokens": 4,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.0,
            "top_k": 6,
            "logprobs": 2,
            "ignore_eos": True,
            "repetition_penalty": 1.5,
            "seed": 4,
        }
    ]
    (head,) = stub.heads
    assert head.startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert b"\r\nX-Own: 1\r\n" in head
    assert b"\r\nX-Request-Id: id-0\r\n" in head


def test_what_is_sent_to_chat(stub: StubServer) -> None:
    send(stub, "plain", backend="openai-chat", logprobs=3, use_beam_search=True)
    (body,) = stub.bodies
    assert body["messages"] == [{"role": "user", "content": "plain"}]
    assert (body["max_completion_tokens"], body["logprobs"], body["top_logprobs"], body["use_beam_search"]) == (4, True, 3, True)
    assert "prompt" not in body
    assert "temperature" not in body
    assert stub.heads[0].startswith(b"POST /v1/chat/completions ")


def test_at_most_so_many_at_once(stub: StubServer) -> None:
    outcomes = send(stub, *["plain"] * 12, max_concurrency=3)
    assert stub.most_open <= 3
    assert stub.num_connections <= 3
    assert sum(o.queue_s > 0 for o in outcomes) >= 9


def test_all_at_once(stub: StubServer) -> None:
    async def live() -> Run:
        running = asyncio.ensure_future(_run(stub, [Sample("held", 3, 2)] * 40, max_concurrency=None))
        while stub.num_open < 40:  # the stub answers nobody before it has all
            await asyncio.sleep(0)
        stub.release.set()
        return await running

    done = asyncio.run(live())
    assert all(o.is_success for o in done.outcomes)
    assert stub.most_open == 40


def test_probes_go_beside_the_load(stub: StubServer) -> None:
    async def live() -> Run:
        running = asyncio.ensure_future(_run(stub, [Sample("held", 3, 2)], probe_request_rate=100.0))
        while len(stub.bodies) < 4:
            await asyncio.sleep(0)
        stub.release.set()
        return await running

    done = asyncio.run(live())
    assert len(done.outcomes) == 1
    assert len(done.probes) >= 3
    assert all(p.num_output == 1 for p in done.probes)


def test_a_run_that_is_cancelled_leaves_nothing(stub: StubServer) -> None:
    async def live() -> set[asyncio.Task[Any]]:
        running = asyncio.ensure_future(_run(stub, [Sample("stall", 3, 2)] * 3, max_concurrency=None, probe_request_rate=50.0))
        while stub.num_open < 3:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})
        return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}

    assert asyncio.run(live()) == set()


def test_a_connection_that_the_server_closed_is_replaced(stub: StubServer) -> None:
    async def live() -> list[Outcome]:
        client = Client(Address(f"http://127.0.0.1:{stub.port}"), {})
        sender = Sender(client, ServeOptions(), "stub")
        outcomes = [await sender.send(Sample("plain", 1, 2)) for _ in range(2)]
        outcomes.append(await sender.send(Sample("hangup", 1, 2)))  # the kept connection, then a fresh one
        await client.close()
        return outcomes

    outcomes = asyncio.run(live())
    assert [o.is_success for o in outcomes] == [True, True, False]
    assert stub.num_connections == 2
    assert [b["prompt"] for b in stub.bodies] == ["plain", "plain", "hangup", "hangup"]


def test_unix_socket() -> None:
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        path = str(Path(folder) / "s")
        stub = StubServer(path)
        try:
            (outcome,) = send(stub, "plain", url=f"unix:{path}")
        finally:
            stub.close()
        assert outcome.error == ""


def test_get(stub: StubServer) -> None:
    async def live() -> tuple[int, bytes, int]:
        client = Client(Address(f"http://127.0.0.1:{stub.port}/"), {})
        status, body = await client.get("/v1/models")
        missing, _ = await client.get("/nothing")
        await client.close()
        return status, body, missing

    assert asyncio.run(live()) == (200, b'{"data": [{"id": "stub"}]}', 404)


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:8000", "http://", "http://h:port"])
def test_addresses_that_cannot_be(url: str) -> None:
    with pytest.raises(ConfigError):
        Address(url)


def test_addresses() -> None:
    assert (Address("http://[::1]:80/x/").host, Address("http://[::1]:80/x/").path, Address("http://[::1]:80/x/").header) == (
        "::1",
        "/x",
        "[::1]:80",
    )
    assert Address("https://h").port == 443
    assert Address("https://h").tls is not None
    assert Address("https://h", insecure=True).tls.verify_mode == 0  # type: ignore[union-attr]


def test_tls(tmp_path: Path) -> None:
    """A certificate that nobody vouches for is refused, and taken with --insecure."""
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=stub", "-days", "2")
    subprocess.run(["openssl", "req", "-x509", *kind, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    stub = StubServer(tls=context)
    try:
        address = f"https://127.0.0.1:{stub.port}"
        (refused,) = send(stub, "plain", url=address)
        (taken,) = send(stub, "plain", url=address, insecure=True)
    finally:
        stub.close()
    assert "certificate" in refused.error
    assert taken.text == " 0 1 2 3"
