"""Writes the reference pages that are made from code: options, variables, sampling, models. `make docs` runs it; a test compares."""

import json
import sys
import typing
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from octavo import environment, plugins
from octavo.bench.options import (
    DatasetOptions,
    LatencyOptions,
    QualityOptions,
    ServeOptions,
    StartupOptions,
    StepOptions,
    ThroughputOptions,
)
from octavo.config import awaited, variables
from octavo.config.options import BatchOptions, Options, PlanOptions, ServerOptions, typed_fields
from octavo.frontend.series import AWAITED, BUCKETS, ENGINE, SERIES
from octavo.protocol.sampling_params import SamplingParams
from octavo.server import errors, tokenize
from octavo.server.http_metrics import HTTP_SERIES, UNCOUNTED
from octavo.server.openai import models, protocol, reply

HERE = Path(__file__).parent


def options_page() -> str:
    lines = [
        "# Options",
        "",
        "Each engine option is a flag of `octavo serve` and a keyword of `LLM(...)`; in flags `_` is `-`. An option left out is decided by",
        "octavo, which logs the reason. Switches also have `--no-…`; `--enable-…` and `--disable-…` mirror each other. Sizes take units:",
        "1k is 1,000, 1K is 1,024. [Configuration](../configuration.md) tells the rest.",
    ]
    for title, cls in (("Engine", Options), ("Server", ServerOptions), ("run-batch", BatchOptions), ("plan", PlanOptions)):
        lines += ["", f"## {title}", "", "| flag | default | what it does |", "|---|---|---|"]
        for f in typed_fields(cls):
            default = "" if f.default is None else "{}" if not isinstance(f.default, (str, int, float, bool)) else f"`{f.default}`"
            choices = f" One of: {', '.join(f.metadata['choices'])}." if f.metadata["choices"] else ""
            names = " ".join(f"`{n}`" for n in ("--" + f.name.replace("_", "-"), *f.metadata["aliases"]))
            lines.append(f"| {names} | {default} | {f.metadata['help']}.{choices} |".replace("..", "."))
    lines += [
        "",
        "## What vLLM has beside these",
        "",
        "An option that is refused ends the start with its name and the reason; its default, and what else asks for nothing, is accepted.",
        "One that is accepted changes nothing, and the log says why.",
    ]
    names = {f.name for cls in (Options, ServerOptions) for f in typed_fields(cls)}
    for section in dict.fromkeys(row.section for row in awaited.rows()):
        lines += ["", f"### {section}", "", "| flag | asks for nothing | any other value |", "|---|---|---|"]
        for row in (r for r in awaited.rows() if r.section == section):
            flags = " ".join(f"`{n}`" for n in ("--" + row.name.replace("_", "-"), *row.flags))
            harmless = " ".join(f"`{json.dumps(v) if not isinstance(v, str) or not v else v}`" for v in row.harmless)
            what = row.effect if row.effect.startswith("awaits") else ("refused: " if row.is_refused else "accepted: ") + row.told
            some = f" ({', '.join(row.words)})" if row.name in names else ""
            lines.append(f"| {flags} | {harmless} | {what}{some} |")
    return "\n".join(lines) + "\n"


def environment_page() -> str:
    lines = [
        "# Environment variables",
        "",
        "A variable of octavo is `OCTAVO_NAME`. `VLLM_NAME` is read where that is not set, and the log names each one that is read so.",
        "Switches are 1, true, yes, on or 0, false, no, off. At start the environment is looked through: a value that cannot be, or that",
        "asks for what octavo does not have, ends the start; a name that means nothing gets a warning, and with",
        "`--fail-on-environ-validation` an error.",
        "",
        "| `OCTAVO_…` and `VLLM_…` | what it does |",
        "|---|---|",
    ]
    lines += [f"| `{name}` | {_first_line(reader)} |" for name, reader in environment.VARIABLES.items()]
    lines += ["", "## Of others", "", "| variable | what it does |", "|---|---|"]
    lines += [f"| `{name}` | {_first_line(reader)} |" for name, reader in {**environment.OTHERS, **environment.OURS}.items()]
    lines += ["| `NO_COLOR` `FORCE_COLOR` `TERM` | " + _first_line(environment.wants_color) + " |"]
    lines += ["| `HF_TOKEN` `HF_ENDPOINT` `HF_HOME` | As the Hugging Face library reads them. |"]
    lines += ["", "## What vLLM has beside these", "", "| variable | asks for nothing | any other value |", "|---|---|---|"]
    for variable in variables.table().values():
        kind, _, text = variable.effect.partition(": ")
        what = {"note": f"accepted: {text}", "never": f"refused: {text}", "other": f"not octavo's: {text}", "gone": f"warned of: {text}"}
        harmless = " ".join(f"`{v}`" for v in variable.harmless)
        lines.append(f"| `{variable.name}` | {harmless} | {what.get(kind, variable.effect)} |")
    return "\n".join(lines) + "\n"


def _first_line(function: Callable[[], Any]) -> str:
    return str(function.__doc__).splitlines()[0]


def bench_page() -> str:
    lines = [
        "# Options of the benches",
        "",
        "`octavo bench serve` and `octavo bench throughput` have the options under Datasets and their own; `throughput`, `latency`,",
        "`startup`, `step` and `quality` have [those of the engine](options.md) too. What is marked *not yet* is refused with its reason.",
    ]
    datasets = {f.name for f in fields(DatasetOptions)}
    for title, cls in (
        ("Datasets", DatasetOptions),
        ("serve", ServeOptions),
        ("throughput", ThroughputOptions),
        ("latency", LatencyOptions),
        ("startup", StartupOptions),
        ("step", StepOptions),
        ("quality", QualityOptions),
    ):
        lines += ["", f"## {title}", "", "| option | default | what it does |", "|---|---|---|"]
        for f in fields(cls):
            if cls is DatasetOptions or f.name not in datasets:
                default = "" if f.default is None or not isinstance(f.default, (str, int, float)) else f"`{f.default}`"
                choices = f" One of: {', '.join(f.metadata['choices'])}." if f.metadata["choices"] else ""
                help_text = f.metadata["help"].replace("not yet:", "*not yet*:")
                lines.append(f"| `--{f.name.replace('_', '-')}` | {default} | {help_text}.{choices} |".replace("..", "."))
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


def quality_page() -> str:
    from docs.quality import quality_page

    return quality_page()


def formats_page() -> str:
    from docs.formats import formats_page  # reads weights, which the other pages need not wait for

    return formats_page()


def parsers_page() -> str:
    from docs.parsers import parsers_page

    return parsers_page()


def figures_page() -> str:
    from docs.figures import figures_page  # makes plans, which the other pages need not wait for

    return figures_page()


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


PAGES = {
    "options.md": options_page,
    "environment.md": environment_page,
    "sampling.md": sampling_page,
    "models.md": models_page,
    "api.md": api_page,
    "metrics.md": metrics_page,
    "bench.md": bench_page,
    "formats.md": formats_page,
    "parsers.md": parsers_page,
    "figures.md": figures_page,
    "quality.md": quality_page,
}


def main() -> int:
    folder = HERE / "reference"
    folder.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page())
        print(folder / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
