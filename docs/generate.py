"""Writes the reference pages that are made from code: options, API fields, metrics, models. `make docs` runs it; a test compares."""

import sys
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import msgspec

from octavo import plugins
from octavo.config.options import Options, ServerOptions
from octavo.frontend.series import AWAITED, BUCKETS, ENGINE, SERIES
from octavo.protocol.sampling_params import SamplingParams
from octavo.server.http_metrics import HTTP_SERIES, UNCOUNTED

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


def metrics_page() -> str:
    lines = [
        "# Metrics",
        "",
        "Every series of `/metrics`. A counter has `_total` behind its name there, a histogram `_bucket`, `_sum` and `_count`; both have",
        "`_created`. [Metrics](../metrics.md) tells how they are used.",
        "",
        "## Engine",
        "",
        f"Labels are {_names(ENGINE)} where no others are given. `--metrics-prefix` replaces `vllm:`; `--disable-log-stats` leaves",
        "them away.",
        "",
        "| name | kind | labels | buckets | what it says | counted by |",
        "|---|---|---|---|---|---|",
    ]
    for s in SERIES:
        values = f"`{s.label}`: {', '.join(s.values)}" if s.label else ""
        own = "" if s.own == ENGINE else _names(s.own)
        needs = f" Only with `{s.needs}`." if s.needs else ""
        family = f"`{s.family}`" if s.family else ""
        labels = "; ".join(part for part in (own, values) if part)
        lines.append(f"| `vllm:{s.name}` | {s.kind} | {labels} | {family} | {s.text}{needs} | {s.source} |")
    lines += ["", "### Buckets", "", "`--custom-histogram-buckets` takes these names.", "", "| family | upper bounds |", "|---|---|"]
    lines += [f"| `{name}` | {', '.join(f'{b:g}' for b in bounds)} |" for name, bounds in BUCKETS.items()]
    lines.append("| `request_tokens` | 1, 2, 5, 10, 20, 50 and so on, up to the context |")
    lines += ["", "## HTTP", "", f"Not counted: {_names(sorted(UNCOUNTED))}. A path that is no endpoint is `none`.", ""]
    lines += ["| name | kind | labels | what it says |", "|---|---|---|---|"]
    kinds = ("counter", "summary", "summary", "histogram", "histogram")
    for kind, (name, text, names) in zip(kinds, HTTP_SERIES, strict=True):
        lines.append(f"| `{name}` | {kind} | {_names(names)} | {text} |")
    lines += ["", "## Process", "", "Of the server's own process; the engine core and the worker are processes of their own.", ""]
    lines += ["`python_gc_*` and `python_info`; on Linux also `process_cpu_seconds_total`, `process_resident_memory_bytes`,"]
    lines += ["`process_virtual_memory_bytes`, `process_start_time_seconds`, `process_open_fds` and `process_max_fds`."]
    lines += ["", "## Not here yet", "", "Series of vLLM that await their feature.", "", "| name | awaits |", "|---|---|"]
    lines += [f"| `vllm:{name}` | {feature} |" for name, feature in AWAITED.items()]
    return "\n".join(lines) + "\n"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


PAGES = {"options.md": options_page, "sampling.md": sampling_page, "models.md": models_page, "metrics.md": metrics_page}


def main() -> int:
    folder = HERE / "reference"
    folder.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page())
        print(folder / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
