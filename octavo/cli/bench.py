"""octavo bench serve | throughput | latency | startup | step | quality: the options of each, and what runs them."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from octavo.bench.options import LatencyOptions, QualityOptions, ServeOptions, StartupOptions, StepOptions, ThroughputOptions, check
from octavo.cli.parser import Parser, add_options
from octavo.config.options import Options, option_names
from octavo.errors import ConfigError

# bench -> what it does
BENCHES = {
    "serve": "load on a running server",
    "throughput": "how many tokens a second an engine makes of many prompts",
    "latency": "how long one batch takes",
    "startup": "how long an engine takes to start",
    "step": "where the time of one step goes",
    "quality": "size, memory, latency and perplexity of models, side by side",
}
# bench of vLLM -> the feature that it awaits
LATER = {
    "sweep": "runs over many settings",
    "mm-processor": "multimodal models",
    "forward": "the timing of single steps; see octavo bench step",
}
Own = TypeVar("Own", bound=Any)


def usage() -> str:
    lines = ["octavo bench: measure a server or an engine", "", "usage: octavo bench BENCH ...", ""]
    lines += [f"  {name:<10} {text}" for name, text in BENCHES.items()]
    return "\n".join([*lines, "", "octavo bench BENCH --help tells its options."])


def parser(bench: str, own: type, engine: type | None) -> Parser:
    """The command line of one bench: its own options, and the engine's where it starts one."""
    result = Parser(prog=f"octavo bench {bench}", description=f"Measure {BENCHES[bench]}.")
    if own is QualityOptions:
        what = (
            "a model as octavo serve takes it; MODEL=SCHEME quantizes it, MODEL=kv:FORMAT its cache; FILE.gguf=llama.cpp measures llama.cpp"
        )
        result.add_argument("models", nargs="+", metavar="MODEL", help=what)
    elif own is StepOptions:
        result.add_argument("models", nargs=1, metavar="MODEL", help="as octavo serve takes it")
    add_options(result, own, skip=_shared(own, engine))
    if engine is not None:
        add_options(result, engine, skip=("model",) if own in (QualityOptions, StepOptions) else ())
    return result


def parse(bench: str, own: type[Own], engine: type | None, argv: Sequence[str]) -> tuple[Own, Any]:
    """(options of the bench, options of the engine). Exits with 2 for what cannot be."""
    reader = parser(bench, own, engine)
    typed: dict[str, Any] = vars(reader.parse_args(argv))
    names = option_names(own)
    options: Own = own(**{name: value for name, value in typed.items() if name in names})
    try:
        check(options)
    except ConfigError as error:
        reader.exit(2, f"octavo bench {bench}: {error}\n")
    rest = {} if engine is None else {name: value for name, value in typed.items() if name in option_names(engine)}
    return options, None if engine is None else engine(**rest)


def run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if argv else 2
    bench, words = argv[0], argv[1:]
    if bench in _RUNS:
        return _RUNS[bench](words)
    if bench in LATER:
        print(f"octavo bench: {bench} is not available in this version of octavo: it awaits {LATER[bench]}", file=sys.stderr)
    else:
        print(f"octavo bench: unknown bench {bench!r}", file=sys.stderr)
    print(f"hint: there are {', '.join(BENCHES)}", file=sys.stderr)
    return 2


def _shared(own: type, engine: type | None) -> tuple[str, ...]:
    """Options that are the engine's too, such as its seed: typed once, they go to both."""
    return () if engine is None else tuple(option_names(own) & option_names(engine))


def _serve(argv: list[str]) -> int:
    options, _ = parse("serve", ServeOptions, None, argv)
    from octavo.bench.serve import serve

    return serve(options)


def _throughput(argv: list[str]) -> int:
    options, engine = parse("throughput", ThroughputOptions, Options, argv)
    from octavo.bench.throughput import throughput

    return throughput(options, engine)


def _latency(argv: list[str]) -> int:
    options, engine = parse("latency", LatencyOptions, Options, argv)
    from octavo.bench.latency import latency

    return latency(options, engine)


def _startup(argv: list[str]) -> int:
    options, engine = parse("startup", StartupOptions, Options, argv)
    from octavo.bench.startup import startup

    return startup(options, engine)


def _quality(argv: list[str]) -> int:
    models = list(vars(parser("quality", QualityOptions, Options).parse_args(argv))["models"])
    options, engine = parse("quality", QualityOptions, Options, argv)
    from octavo.bench.quality import quality

    return quality(options, models, engine)


def _step(argv: list[str]) -> int:
    models = list(vars(parser("step", StepOptions, Options).parse_args(argv))["models"])
    options, engine = parse("step", StepOptions, Options, argv)
    from octavo.bench.step import step

    return step(options, models, engine)


def parsers() -> dict[str, Parser]:
    """The command line of each bench, by its name."""
    return {
        "serve": parser("serve", ServeOptions, None),
        "throughput": parser("throughput", ThroughputOptions, Options),
        "latency": parser("latency", LatencyOptions, Options),
        "startup": parser("startup", StartupOptions, Options),
        "step": parser("step", StepOptions, Options),
        "quality": parser("quality", QualityOptions, Options),
    }


_RUNS: dict[str, Callable[[list[str]], int]] = {
    "serve": _serve,
    "throughput": _throughput,
    "latency": _latency,
    "startup": _startup,
    "step": _step,
    "quality": _quality,
}
