"""Writes the reference pages that are made from code: options, API fields, metrics, models. `make docs` runs it; a test compares."""

import sys
from dataclasses import fields
from pathlib import Path

import msgspec

from octavo import plugins
from octavo.config.options import Options, ServerOptions
from octavo.protocol.sampling_params import SamplingParams

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


def formats_page() -> str:
    from docs.formats import formats_page  # reads weights, which the other pages need not wait for

    return formats_page()


PAGES = {"options.md": options_page, "sampling.md": sampling_page, "models.md": models_page, "formats.md": formats_page}


def main() -> int:
    folder = HERE / "reference"
    folder.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page())
        print(folder / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
