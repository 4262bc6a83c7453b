"""The parts of run-batch, each alone: lines and their faults, the journal, transfers, where things are kept."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo.cli import run_batch
from octavo.errors import ConfigError, OctavoError
from octavo.server.batch import answers, transfer
from octavo.server.batch.journal import Journal, Owner
from octavo.server.batch.lines import BatchFile, Line, parse
from octavo.server.batch.run import Places

OWNER = Owner("digest", "model")


def line(**changes: Any) -> bytes:
    return json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}} | changes).encode()


@pytest.mark.parametrize(
    ("text", "custom_id", "parameter", "said"),
    [
        (b"nonsense", None, None, "no request"),
        (b"[]", None, None, "no request"),
        (b'{"custom_id": "a"', None, None, "no request"),
        (b"\xff\xfe", None, None, "no request"),
        (b"[" * 100_000, None, None, "no request"),
        (b'{"method": "POST", "url": "/v1/completions", "body": {}}', None, None, "custom_id"),
        (line(custom_id=7), None, None, "custom_id"),
        (line(custom_id=""), None, "custom_id", "empty"),
        (b'{"custom_id": "a", "url": "/v1/completions", "body": {}}', "a", None, "method"),
        (b'{"custom_id": "a", "method": "POST", "url": "/v1/completions"}', "a", None, "body"),
        (line(method="GET"), "a", "method", "must be POST"),
        (line(url="/v1/embeddings"), "a", "url", "embeddings"),
        (line(url="/v1/audio/transcriptions"), "a", "url", "transcription"),
        (line(url="http://169.254.169.254/latest"), "a", "url", "there is no url"),
        (line(url="/metrics"), "a", "url", "there is no url"),
        (line(body={"stream": True}), "a", "stream", "stream"),
    ],
)
def test_what_is_no_request_is_a_fault(text: bytes, custom_id: str | None, parameter: str | None, said: str) -> None:
    found = parse(3, text)
    assert found.fault is not None
    assert (found.number, found.custom_id, found.fault.param) == (3, custom_id, parameter)
    assert said in found.fault.message
    written = json.loads(answers.refused(found))
    assert (written["custom_id"], written["response"]["status_code"]) == (custom_id, 400)
    assert written["error"] == written["response"]["body"]["error"]


def test_a_body_reaches_the_endpoint_as_it_stands() -> None:
    body = b'{"prompt":  "\\u0041", "x": 1e400, "x": [1,\t2]}'
    found = parse(0, b'{"body": %s, "url": "/v1/completions", "method": "post", "custom_id": "a", "more": 1}' % body)
    assert found == Line(0, "a", "/v1/completions", body)


def test_blank_lines_are_none_and_the_first_of_two_wins(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join([line(), b"", b"  ", line(custom_id="b"), line(), b""]))
    source = BatchFile(path)
    lines = list(source.lines())
    assert source.total == len(lines) == 3
    assert [(each.number, each.custom_id, each.fault is None) for each in lines] == [(0, "a", True), (1, "b", True), (2, "a", False)]
    assert "line 1 already" in str(lines[2].fault)
    with pytest.raises(ConfigError, match="cannot be read"):
        BatchFile(tmp_path / "none")


def test_a_journal_is_restored_up_to_its_first_torn_line(tmp_path: Path) -> None:
    path, out = tmp_path / "deep" / "j", tmp_path / "out"
    with Journal(path, OWNER) as journal:
        for number, answer in ((2, b'{"c": " "}'), (0, b'{"a": 1}'), (1, b"{}")):
            journal.append(number, answer, number == 1)
        journal.sync()
        with pytest.raises(ConfigError, match="another run-batch"):
            Journal(path, OWNER)
    whole = path.read_bytes()
    for torn in (b"", b"3 ok 0", b"3 ok 00000000 {}\n4 ok 99914b93 {}\n", b"\0" * 4096, b"\n"):
        path.write_bytes(whole + torn)
        with Journal(path, OWNER) as journal:
            assert (len(journal), journal.num_failed, 1 in journal, 3 in journal) == (3, 1, True, False)
            assert path.read_bytes() == whole
            journal.append(5, b"[]", False)
            journal.copy_to(out)
            assert out.read_bytes() == b'{"a": 1}\n{}\n{"c": " "}\n[]\n'
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with Journal(path, OWNER) as journal:
            assert len(journal) == max(0, whole[:cut].count(b"\n") - 1)
            assert whole.startswith(path.read_bytes())


@pytest.mark.parametrize("other", [Owner("x", "model"), Owner("digest", "x"), Owner("digest", "model", 0)])
def test_a_journal_of_another_run_is_refused(tmp_path: Path, other: Owner) -> None:
    Journal(tmp_path / "j", other).__exit__(None, None, None)
    before = (tmp_path / "j").read_bytes()
    with pytest.raises(ConfigError, match="of a run that was cut off"):
        Journal(tmp_path / "j", OWNER)
    assert (tmp_path / "j").read_bytes() == before
    (tmp_path / "k").write_text("a file of the user's\n")
    with pytest.raises(ConfigError, match="is not what an earlier run-batch left"):
        Journal(tmp_path / "k", OWNER)
    assert (tmp_path / "k").read_text() == "a file of the user's\n"


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE_ROOT", str(tmp_path / "cache"))
    beside = Places.of(str(tmp_path / "out"), None)
    assert (beside.journal, beside.final) == (tmp_path / "out.part", tmp_path / "out")
    assert Places.of(str(tmp_path / "out"), str(tmp_path / "t")).journal.parent == tmp_path / "t"
    sent = Places.of("https://h/x", None)
    assert (sent.journal.parent, sent.final, sent.address) == (tmp_path / "cache" / "batches", None, "https://h/x")
    assert sent == Places.of("https://h/x", None) != Places.of("https://h/y", None)
    for wrong in (str(tmp_path), str(tmp_path / "none" / "out")):
        with pytest.raises(ConfigError, match="-o"):
            Places.of(wrong, None)


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.seen.append(self.path)  # type: ignore[attr-defined]
        status, body = self.server.pages.get(self.path, (404, b""))  # type: ignore[attr-defined]
        self.send_response(status)
        if status == 302:
            self.send_header("location", "/secret")
        self.send_header("content-length", str(len(body) + (7 if self.path == "/torn" else 0)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def do_PUT(self) -> None:
        self.server.pages[self.path] = (200, self.rfile.read(int(self.headers["content-length"])))  # type: ignore[attr-defined]
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def host() -> Iterator[Any]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.pages = {"/in": (200, b"lines"), "/torn": (200, b"li"), "/moved": (302, b""), "/secret": (200, b"s"), "/busy": (503, b"")}  # type: ignore[attr-defined]
        server.seen = []  # type: ignore[attr-defined]
        server.url = f"http://127.0.0.1:{server.server_address[1]}"  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def test_transfers(host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer.time, "sleep", lambda _: None)
    transfer.fetch(f"{host.url}/in", tmp_path / "in")
    assert (tmp_path / "in").read_bytes() == b"lines"
    transfer.send(tmp_path / "in", f"{host.url}/out?signature=x")
    assert host.pages["/out?signature=x"] == (200, b"lines")
    for page, said in (("/none", "HTTP 404"), ("/torn", "broke off"), ("/busy", "HTTP 503"), ("/moved", "redirects to /secret")):
        with pytest.raises(OctavoError, match=said):
            transfer.fetch(host.url + page, tmp_path / "x")
    assert [host.seen.count(page) for page in ("/none", "/torn", "/busy", "/moved", "/secret")] == [1, 3, 3, 1, 0]
    with pytest.raises(OctavoError, match="cannot be fetched"):
        transfer.fetch("http://127.0.0.1:1/x", tmp_path / "x")
    with pytest.raises(OctavoError, match="cannot be sent"):
        transfer.send(tmp_path / "in", "http://127.0.0.1:1/x")


@pytest.mark.parametrize("raises", [False, True])
async def test_an_app_that_fails_is_an_answer(raises: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert dict(scope["headers"])[b"authorization"] == b"Bearer k"
        assert (await receive())["body"] == b"{}"
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"it broke"})
        if raises:
            raise RuntimeError("for the log")

    status, written = await answers.answered(app, Line(0, "a", "/v1/completions", b"{}"), "k")
    answer = json.loads(written)
    assert (status, answer["response"]["status_code"], answer["error"]["code"]) == (500, 500, 500)


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    batch, engine, server = run_batch.parse(["m", "-i", "a", "-o", "b", "--max_inflight", "1K", "--enable-metrics", "--port", "9"])
    assert (batch.input_file, batch.output_file, batch.max_inflight, batch.enable_metrics) == ("a", "b", 1024, True)
    assert (engine.model, server.port) == ("m", 9)
    for words, said in ((["-i", "a"], "-o is missing"), (["-o", "a"], "-i is missing"), (["--uds", "x"], "unknown argument --uds")):
        with pytest.raises(SystemExit) as caught:
            run_batch.parse(words)
        assert caught.value.code == 2
        assert said in capsys.readouterr().err
