"""Transfer: a batch file from an address, the answers to one. Only addresses that the operator typed, and never where they redirect to."""

import http.client
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from octavo.errors import OctavoError

TRIES = 3
TIMEOUT_S = 60.0
_CHUNK_BYTES = 1 << 20


def is_address(text: str) -> bool:
    return text.lower().startswith(("http://", "https://"))


def fetch(address: str, path: Path) -> None:
    """Write what is at `address` to `path`. Raises OctavoError."""

    def once() -> None:
        with _open(urllib.request.Request(address)) as response, path.open("wb") as file:
            expected, size = response.headers.get("content-length"), 0
            while chunk := response.read(_CHUNK_BYTES):
                file.write(chunk)
                size += len(chunk)
            if expected is not None and size != int(expected):
                raise ConnectionError(f"it broke off after {size} of {expected} bytes")

    _try(once, f"{address} cannot be fetched", "check -i, and whether this machine reaches it")


def send(path: Path, address: str) -> None:
    """PUT the file to `address`. Raises OctavoError."""

    def once() -> None:
        headers = {"Content-Type": "application/jsonl", "Content-Length": str(path.stat().st_size)}
        with path.open("rb") as file, _open(urllib.request.Request(address, file, headers, method="PUT")) as response:
            response.read(_CHUNK_BYTES)

    _try(once, f"the answers cannot be sent to {address}", "they are kept: run the same command again, and only the sending is done")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """An address that leads elsewhere leads to whatever its owner wishes, services of the operator's own network included."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _open(request: urllib.request.Request) -> Any:
    return urllib.request.build_opener(_NoRedirects).open(request, timeout=TIMEOUT_S)


def _try(once: Any, fact: str, hint: str) -> None:
    """A few times, where trying again may help."""
    for number in range(1, TRIES + 1):
        try:
            once()
            return
        except urllib.error.HTTPError as error:
            with error:
                reason, may_help = f"HTTP {error.code} {error.reason}", error.code >= 500 or error.code == 429
                if 300 <= error.code < 400:
                    hint = f"it redirects to {error.headers.get('location')}, which is not followed: name that address itself"
        except (OSError, http.client.HTTPException, ValueError) as error:
            inner = error.reason if isinstance(error, urllib.error.URLError) else error
            reason, may_help = str(inner) or type(inner).__name__, not isinstance(inner, (ssl.SSLError, ValueError))
        if not may_help or number == TRIES:
            raise OctavoError(f"{fact}: {reason}", hint)
        time.sleep(number)
