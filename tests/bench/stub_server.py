"""A stub of an OpenAI-compatible server, on a real socket: the prompt says how it misbehaves."""

import asyncio
import json
import ssl
import threading
from typing import Any

METRICS = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="stub"} 0.0
vllm:generation_tokens_total{engine="0",model_name="stub"} %(tokens)d.0
vllm:prompt_tokens_total{engine="0",model_name="stub"} %(tokens)d.0
vllm:prefix_cache_queries_total{engine="0",model_name="stub"} %(tokens)d.0
vllm:prefix_cache_hits_total{engine="0",model_name="stub"} 0.0
vllm:external_prefix_cache_hits_total{engine="0",model_name="stub"} 999.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="stub"} %(tokens)d.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="stub"} %(twice)d.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="stub"} %(tokens)d.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="stub",position="0"} %(tokens)d.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="stub",position="1"} 0.0
"""


class StubServer:
    """On a thread of its own. `bodies` and `heads` are the requests as they came; close() ends it."""

    def __init__(self, socket_path: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[bytes] = []
        self.num_connections = 0
        self.num_open = self.most_open = 0
        self.tokens = 0
        self._asked = threading.Condition()
        self.release = threading.Event()  # what "held" requests wait for
        self.port = 0
        self._socket_path, self._tls = socket_path, tls
        self._is_up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._is_up.wait(10)

    def _serve(self) -> None:
        self._loop.run_until_complete(self._run())
        self._loop.close()

    async def _run(self) -> None:
        self._end = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        if self._socket_path is not None:
            server = await asyncio.start_unix_server(self._accept, self._socket_path)
        else:
            server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=512, ssl=self._tls)
            self.port = server.sockets[0].getsockname()[1]
        self._is_up.set()
        await self._end.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def close(self) -> None:
        self.release.set()
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def is_asked(self, count: int, timeout_s: float) -> bool:
        """Wait until so many requests are open."""
        with self._asked:
            return self._asked.wait_for(lambda: self.num_open >= count, timeout_s)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.num_connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; False when the connection is to end."""
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split()[1].decode()
        if b"GET" in head[:4]:
            page = {
                "/v1/models": json.dumps({"data": [{"id": "stub"}]}),
                "/metrics": METRICS % {"tokens": self.tokens, "twice": 2 * self.tokens},
            }.get(path, "")
            await _whole(writer, 200 if page else 404, page)
            return True
        size = int(next(line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")))
        body = json.loads(await reader.readexactly(size))
        self.heads.append(head)
        self.bodies.append(body)
        with self._asked:
            self.num_open += 1
            self._asked.notify_all()
        self.most_open = max(self.most_open, self.num_open)
        try:
            return await self._behave(body, path.endswith("chat/completions"), writer)
        finally:
            self.num_open -= 1

    async def _behave(self, body: dict[str, Any], is_chat: bool, writer: asyncio.StreamWriter) -> bool:
        prompt = body["messages"][0]["content"] if is_chat else body["prompt"]
        kind, count = prompt.split()[0], int(body.get("max_tokens") or body.get("max_completion_tokens"))
        if kind == "error":
            await _whole(writer, 500, json.dumps({"error": {"message": "out of luck", "type": "x"}}))
            return True
        if kind == "overload":
            await _whole(writer, 503, "busy")
            return True
        if kind == "hangup":
            return False
        if kind == "garbage":
            writer.write(b"no HTTP at all\r\n\r\n")
            await writer.drain()
            return False
        is_framed = kind != "unframed"
        framing = b"Transfer-Encoding: chunked\r\n" if is_framed else b"Connection: close\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + framing + b"\r\n")
        if kind == "held":
            await asyncio.to_thread(self.release.wait, 30)
        pieces = [_piece(is_chat, f" {i}", None) for i in range(count)]
        if kind == "broken":
            await _send(writer, b"".join(pieces[:2]), is_framed)
            writer.transport.abort()
            return False
        if kind == "faulty":
            await _send(writer, pieces[0] + b'data: {"error": {"message": "row fell over"}}\n\ndata: [DONE]\n\n0', is_framed)
            await _last(writer, is_framed)
            return True
        if kind == "stall":
            await _send(writer, pieces[0], is_framed)
            await self._end.wait()
            return False
        if kind == "comments":
            pieces = [p for piece in pieces for p in (b": keep-alive\r\n\r\n", piece.replace(b"\n", b"\r\n"))]
        if kind == "several":
            pieces = [b"".join(pieces[i : i + 3]) if i == 0 else _piece(is_chat, " a b c", None) for i in range(0, count, 3)]
        if is_chat:
            pieces.insert(0, _event({"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}))
        end = [_piece(is_chat, "", "length")]
        if kind != "uncounted":
            end.append(_event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": count}}))
        if kind != "endless":
            end.append(b"data: [DONE]\n\n")
        self.tokens += count
        for piece in [*pieces, *end]:
            if kind == "torn":  # every byte alone
                for i in range(len(piece)):
                    await _send(writer, piece[i : i + 1], is_framed)
            else:
                await _send(writer, piece, is_framed)
        await _last(writer, is_framed)
        return is_framed


def _event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _piece(is_chat: bool, text: str, finish: str | None) -> bytes:
    said = {"delta": {"content": text} if text else {}} if is_chat else {"text": text}
    return _event({"choices": [{"index": 0, "finish_reason": finish, **said}]})


async def _send(writer: asyncio.StreamWriter, data: bytes, is_framed: bool) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data) if is_framed else data)
    await writer.drain()


async def _last(writer: asyncio.StreamWriter, is_framed: bool) -> None:
    if is_framed:
        writer.write(b"0\r\n\r\n")
        await writer.drain()


async def _whole(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    data = text.encode()
    writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(data), data))
    await writer.drain()
