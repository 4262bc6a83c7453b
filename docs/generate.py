"""Writes the reference pages that are made from code: options, API fields, metrics, models. `make docs` runs it; a test compares."""

import json
import sys
import typing
from dataclasses import fields
from pathlib import Path

import msgspec

from octavo import plugins
from octavo.config.options import Options, ServerOptions
from octavo.protocol.sampling_params import SamplingParams
from octavo.server import errors, tokenize
from octavo.server.openai import models, protocol, reply

HERE = Path(__file__).parent


def options_page() -> str:
    lines = [
        "# Options",
        "",
        "Each engine option is a flag of `octavo serve` and a keyword of `LLM(...)`; in flags `_` is `-`. An option left out is decided by",
        "octavo, which logs the reason. Switches also have `--no-…`; `--enable-…` and `--disable-…` mirror each other. Sizes take units:",
        "1k is 1,000, 1K is 1,024.",
    ]
    for title, cls in (("Engine", Options), ("Server", ServerOptions)):
        lines += ["", f"## {title}", "", "| flag | default | what it does |", "|---|---|---|"]
        for f in fields(cls):
            default = "" if f.default is None else "{}" if not isinstance(f.default, (str, int, float, bool)) else f"`{f.default}`"
            choices = f" One of: {', '.join(f.metadata['choices'])}." if f.metadata["choices"] else ""
            names = " ".join(f"`{n}`" for n in ("--" + f.name.replace("_", "-"), *f.metadata["aliases"]))
            lines.append(f"| {names} | {default} | {f.metadata['help']}.{choices} |".replace("..", "."))
    return "\n".join(lines) + "\n"


def sampling_page() -> str:
    lines = [
        "# Sampling parameters",
        "",
        "Fields of `SamplingParams`; the server takes the same names.",
        "",
        "| field | default |",
        "|---|---|",
    ]
    for f in msgspec.structs.fields(SamplingParams):
        lines.append(f"| `{f.name}` | `{f.default!r}` |")
    return "\n".join(lines) + "\n"


def models_page() -> str:
    lines = ["# Models", "", "Model types that octavo builds: the `model_type` of config.json, and the architecture of a GGUF file.", ""]
    lines += [f"- `{name}`" for name in plugins.names("models")]
    return "\n".join(lines) + "\n"


def api_page() -> str:
    lines = [
        "# Fields of the HTTP API",
        "",
        "Made from the code. [The API](../api.md) says what they do together. A batch of conversations has the fields of a chat.",
    ]
    for title, body in REQUESTS.items():
        lines += ["", f"## {title}", "", "| field | default | |", "|---|---|---|"]
        for name, field in sorted(body.model_fields.items()):
            default = "required" if field.is_required() else f"`{json.dumps(field.get_default(call_default_factory=True))}`"
            lines.append(f"| `{name}` | {default} | {field.description or ''} |")
        if body.later:
            lines += ["", "Refused by name until their features exist: " + ", ".join(f"`{name}`" for name in sorted(body.later)) + "."]
    for title, kind in REPLIES.items():
        lines += ["", f"## {title}", ""]
        for part in _parts(kind):
            lines.append(f"- `{part.__name__}`: " + ", ".join(f"`{f.encode_name}`" for f in msgspec.structs.fields(part)))
    return "\n".join(lines) + "\n"


def _parts(reply: type) -> list[type]:
    """A reply and the structs in it, each once, in the order in which they occur."""
    found = [reply]
    for part in found:
        for hint in typing.get_type_hints(part).values():
            stack = [hint]
            while stack:
                kind = stack.pop()
                stack += reversed(typing.get_args(kind))
                if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in found:
                    found.append(kind)
    return found


REQUESTS: dict[str, type[protocol.Body]] = {
    "POST /v1/chat/completions": protocol.ChatRequest,
    "POST /v1/completions": protocol.CompletionRequest,
    "POST /tokenize, a text": tokenize.TokenizeTextRequest,
    "POST /tokenize, a conversation": tokenize.TokenizeChatRequest,
    "POST /detokenize": tokenize.DetokenizeRequest,
}
REPLIES: dict[str, type] = {
    "An answer of /v1/chat/completions": reply.ChatCompletion,
    "A chunk of a chat": reply.ChatChunk,
    "An answer of /v1/completions, and a chunk of one": reply.Completion,
    "An answer of /v1/models": models.ModelList,
    "An answer of /tokenize": tokenize.Tokenized,
    "An answer of /detokenize": tokenize.Detokenized,
    "An error": errors.ErrorBody,
}
PAGES = {"options.md": options_page, "sampling.md": sampling_page, "models.md": models_page, "api.md": api_page}


def main() -> int:
    folder = HERE / "reference"
    folder.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page())
        print(folder / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
