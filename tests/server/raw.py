"""Bytes to a server and back, for what no HTTP library would send."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Answer:
    """One HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)["error"]
        return found


class Client:
    """One connection. Use it as a context."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)

    async def __aenter__(self) -> "Client":
        self.reader, self.writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, has_body: bool = True) -> Answer:
        """The next answer, whole."""
        async with asyncio.timeout(20):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
            body = b""
            if not has_body:
                pass
            elif headers.get("transfer-encoding") == "chunked":
                while size := int(await self.reader.readline(), 16):
                    body += (await self.reader.readexactly(size + 2))[:-2]
                await self.reader.readline()
            else:
                body = await self.reader.readexactly(int(headers.get("content-length", "0")))
            return Answer(int(head[0].split()[1]), headers, body)

    async def is_closed(self, timeout_s: float = 20) -> bool:
        """Whether the server ends the connection, and says nothing more."""
        async with asyncio.timeout(timeout_s):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True


async def ask(url: str, data: bytes, has_body: bool = True) -> Answer:
    """One request's bytes, one answer."""
    async with Client(url) as client:
        await client.send(data)
        return await client.answer(has_body)


def request(method: str, target: str, *headers: str, body: bytes = b"", host: str = "test") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *headers]
    if body and not any(each.lower().startswith(("content-length", "transfer-encoding")) for each in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
