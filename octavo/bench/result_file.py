"""Result file: one run as JSON, under vLLM's keys and its file names."""

import json
import time
from pathlib import Path
from typing import Any

from octavo.bench.load import Run
from octavo.bench.options import ServeOptions
from octavo.errors import ConfigError

# keys that only --save-detailed keeps
DETAILS = ("input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times", "generated_texts", "errors")


def facts(options: ServeOptions, model: str, tokenizer: str) -> dict[str, Any]:
    """What was run."""
    found: dict[str, Any] = {
        "date": time.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": options.backend,
        "backend": options.backend,
        "label": options.label,
        "model_id": model,
        "tokenizer_id": tokenizer,
        "num_prompts": options.num_prompts,
    }
    found |= metadata(options.metadata)
    found |= {
        "request_rate": options.request_rate if options.request_rate < float("inf") else "inf",
        "burstiness": options.burstiness,
        "max_concurrency": options.max_concurrency,
    }
    if options.ramp_up_strategy is not None:
        found |= {
            "ramp_up_strategy": options.ramp_up_strategy,
            "ramp_up_start_rps": options.ramp_up_start_rps,
            "ramp_up_end_rps": options.ramp_up_end_rps,
        }
    return found


def details(run: Run) -> dict[str, Any]:
    """Each request's figures, in the order of the samples."""
    outcomes = run.outcomes
    return {
        "input_lens": [o.num_prompt for o in outcomes],
        "output_lens": [o.num_output or 0 for o in outcomes],
        "ttfts": [o.ttft_s for o in outcomes],
        "itls": [o.itl_s for o in outcomes],
        "latencies": [o.latency_s for o in outcomes],
        "start_times": [o.start_s for o in outcomes],
        "queue_times": [o.queue_s for o in outcomes],
        "generated_texts": [o.text for o in outcomes],
        "errors": [o.error for o in outcomes],
    }


def metadata(words: list[str]) -> dict[str, str]:
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"--metadata {word!r} is no KEY=VALUE")
        found[key] = value
    return found


def path(options: ServeOptions, model: str) -> Path:
    """Where the result goes; its folder is made."""
    limit = "" if options.max_concurrency is None else f"-concurrency{options.max_concurrency}"
    name = f"{options.label or options.backend}-{options.request_rate}qps{limit}-{Path(model).name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    folder = Path(options.result_dir or ".").expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--result-dir {folder} cannot be made: {error.strerror}") from None
    return folder / (options.result_filename or name)


def write(file: Path, result: dict[str, Any], *, detailed: bool, append: bool) -> None:
    """One line of JSON."""
    text = json.dumps(result if detailed else {key: value for key, value in result.items() if key not in DETAILS})
    try:
        if append and file.exists() and file.stat().st_size:
            with file.open("a", encoding="utf-8") as out:
                out.write("\n" + text)
        else:
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None


def write_json(path: str, result: dict[str, Any]) -> None:
    try:
        Path(path).expanduser().write_text(json.dumps(result, indent=4), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--output-json {path} cannot be written: {error.strerror}") from None
