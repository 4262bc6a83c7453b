"""GGUF files, byte by byte, for tests: right ones and wrong ones."""

import struct
from pathlib import Path
from typing import Any

TYPE_OF = {bool: 7, int: 4, float: 6, str: 8}


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def value(what: Any, kind: int | None = None) -> bytes:
    """A metadata value with its type; a list is an array of its first element's type."""
    if isinstance(what, list):
        inner = 9 if isinstance(what[0], list) else kind if kind is not None else TYPE_OF[type(what[0])]
        return struct.pack("<IIQ", 9, inner, len(what)) + b"".join(value(one, None if inner == 9 else inner)[4:] for one in what)
    kind = TYPE_OF[type(what)] if kind is None else kind
    if kind == 8:
        return struct.pack("<I", 8) + string(what)
    form = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}[kind]
    return struct.pack("<I", kind) + struct.pack("<" + form, what)


def build(
    metadata: dict[str, Any],
    tensors: dict[str, tuple[tuple[int, ...], int, bytes]] | None = None,
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """A file. tensors: name -> (shape, outermost axis first; number of the format; bytes). A metadata value of bytes is taken as it is."""
    tensors = tensors or {}
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, what in metadata.items():
        out += string(key) + (what if isinstance(what, bytes) else value(what))
    body = b""
    for name, (shape, kind, raw) in tensors.items():
        body += b"\0" * (-len(body) % alignment)
        out += string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        out += struct.pack("<IQ", kind, len(body))
        body += raw
    return out + b"\0" * (-len(out) % alignment) + body


def write(path: Path, *arguments: Any, **options: Any) -> Path:
    path.write_bytes(build(*arguments, **options))
    return path
