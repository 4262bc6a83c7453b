"""octavo bench quality MODEL...: size, memory, latency and perplexity of each, side by side, as a choice between them needs them.

Perplexity is of a text that the user names, in windows that know nothing of each other. Models whose tokenizers differ are compared by the
bits that a byte of the text takes. A row is printed, and is in the result file, as soon as it is measured.
"""

import dataclasses
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo import environment, logging
from octavo.bench.llama_cpp import LlamaCpp
from octavo.bench.options import QualityOptions
from octavo.bench.result_file import write_json
from octavo.checkpoint import index as checkpoint_index
from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.errors import ConfigError
from octavo.frontend.inputs import Prompt
from octavo.frontend.llm import LLM
from octavo.protocol.sampling_params import SamplingParams
from octavo.text.tokenizer import Tokenizer

ROUNDS = 3  # of the latency, after one that is not counted
LLAMA_CPP, CACHE = "llama.cpp", "kv:"  # what may stand after a model's =, beside a scheme
TITLES = ("model", "tokens", "size MB", "memory MB", "TTFT ms", "TPOT ms", "perplexity", "to the first", "bits/byte")


@dataclass(frozen=True, slots=True)
class Row:
    """One model. size: of its tensors on disk; memory: of its weights when they are loaded. ttft: of a prompt of one window.

    num_tokens: whose probability was taken; tokens and window: as they were asked for.
    """

    model: str
    size_bytes: int
    memory_bytes: int
    ttft_s: float
    tpot_s: float
    perplexity: float
    bits_per_byte: float
    num_tokens: int
    tokens: int
    window: int


def quality(options: QualityOptions, models: list[str], engine: Options) -> int:
    """Prints the table; the exit code. A model may be MODEL=WORDS, as `variant` reads them."""
    if options.window < 2 or options.output_len < 2 or options.tokens < options.window:
        raise ConfigError("--window and --output-len must be at least 2, and --tokens at least one window")
    if options.text is None:
        raise ConfigError("octavo bench quality needs --text FILE", "any text of some thousand words that the models have not been made of")
    if options.resume and options.output_json is None:
        raise ConfigError("--resume needs --output-json FILE", "it takes the rows that are in that file already")
    try:
        text = Path(options.text).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"--text {options.text} cannot be read: {error}") from None
    logging.configure(environment.logging_level(), "bench")
    if engine.enable_prefix_caching is None:
        engine.enable_prefix_caching = False
    variants = [variant(word, engine) for word in models]
    resumed = _kept(options) if options.resume else []
    kept = list(resumed)
    rows: list[Row] = []
    print(line(TITLES, models), flush=True)
    for word, (one, is_llama_cpp) in zip(models, variants, strict=True):
        found = next((row for row in resumed if (row.model, row.tokens, row.window) == (word, options.tokens, options.window)), None)
        if found is None:
            found = (measure_llama_cpp if is_llama_cpp else measure)(word, one, text, options)
            kept.append(found)
            if options.output_json is not None:
                write_json(options.output_json, {"text": options.text, "models": [dataclasses.asdict(row) for row in kept]})
        rows.append(found)
        print(line(cells(found, rows[0]), models), flush=True)
    return 0


def variant(word: str, engine: Options) -> tuple[Options, bool]:
    """(options of one model, whether llama.cpp runs it). word: MODEL=SCHEME, MODEL=kv:FORMAT, both with a comma, or FILE=llama.cpp."""
    model, _, rest = word.partition("=")
    words = rest.split(",") if rest else []
    if LLAMA_CPP in words:
        if words != [LLAMA_CPP] or Path(model).suffix != ".gguf":
            raise ConfigError(f"{word!r} cannot be measured", "llama.cpp runs GGUF files, as they are: FILE.gguf=llama.cpp")
        return dataclasses.replace(engine, model=model), True
    caches = [each.removeprefix(CACHE) for each in words if each.startswith(CACHE)]
    schemes = [each for each in words if not each.startswith(CACHE)]
    if len(caches) > 1 or len(schemes) > 1:
        raise ConfigError(f"{word!r} names two number formats for one thing", "MODEL=SCHEME, MODEL=kv:FORMAT or MODEL=SCHEME,kv:FORMAT")
    changed: dict[str, Any] = {"model": model}
    changed |= {"quantization": schemes[0]} if schemes else {}
    changed |= {"kv_cache_dtype": caches[0]} if caches else {}
    return dataclasses.replace(engine, **changed), False


def measure(name: str, engine: Options, text: str, options: QualityOptions) -> Row:
    """Start one model and take its figures."""
    with LLM.from_options(engine) as llm:
        tokenizer = llm.get_tokenizer()
        windows = _windows(tokenizer, text, options)
        ttft, tpot = _latency(lambda prompt, count: _seconds(llm, prompt, count), windows[0], options.output_len)
        size = checkpoint_index.read(Path(llm.config.model.path)).total_bytes
        return _row(name, size, llm.facts.weights_bytes, (ttft, tpot), _logprobs(llm, windows), windows, tokenizer, options)


def measure_llama_cpp(name: str, engine: Options, text: str, options: QualityOptions) -> Row:
    """The same figures of a GGUF file in llama.cpp; the token ids are those that octavo reads in the text."""
    config = resolve(engine)
    file = Path(config.model.path)
    tokenizer = Tokenizer.load(config.model.tokenizer_path)
    windows = _windows(tokenizer, text, options)
    with LlamaCpp(file, options.window + options.output_len, config.device.threads) as engine_there:
        ttft, tpot = _latency(engine_there.seconds, windows[0], options.output_len)
        logprobs = [value for window in windows for value in engine_there.logprobs(window)]
        size = checkpoint_index.read(file).total_bytes
        return _row(name, size, engine_there.weights_bytes, (ttft, tpot), logprobs, windows, tokenizer, options)


def _row(
    name: str,
    size_bytes: int,
    memory_bytes: int,
    latency: tuple[float, float],
    logprobs: list[float],
    windows: list[list[int]],
    tokenizer: Tokenizer,
    options: QualityOptions,
) -> Row:
    num_bytes = sum(len(tokenizer.decode(window[1:]).encode()) for window in windows)
    perplexity, bits = math.exp(-statistics.fmean(logprobs)), -math.fsum(logprobs) / math.log(2) / num_bytes
    return Row(name, size_bytes, memory_bytes, *latency, perplexity, bits, len(logprobs), options.tokens, options.window)


def _kept(options: QualityOptions) -> list[Row]:
    """The rows of the result file, if there is one."""
    file = Path(options.output_json or "").expanduser()
    if not file.exists():
        return []
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
        rows = [Row(**row) for row in result["models"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"--resume: {file} holds no result of octavo bench quality: {error}", "leave --resume out to write it anew"
        ) from None
    if result.get("text") != options.text:
        raise ConfigError(f"--resume: {file} has figures of {result.get('text')}, not of {options.text}", "give another --output-json")
    return rows


def _windows(tokenizer: Tokenizer, text: str, options: QualityOptions) -> list[list[int]]:
    # tokens of a text are shorter than 16 characters on the whole: a long file need not be tokenized to its end
    ids = tokenizer.encode(text[: 16 * options.tokens])[: options.tokens]
    windows = [ids[start : start + options.window] for start in range(0, len(ids), options.window)]
    windows = [window for window in windows if len(window) > 1]
    if not windows:
        raise ConfigError(f"--text {options.text} is too short")
    return windows


def _logprobs(llm: LLM, windows: list[list[int]]) -> list[float]:
    """Of every token but each window's first."""
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
    prompts: list[Prompt] = [{"prompt_token_ids": window} for window in windows]
    found: list[float] = []
    for output in llm.generate(prompts, params, use_tqdm=False):
        if output.error is not None or output.prompt_logprobs is None or output.prompt_token_ids is None:
            raise ConfigError(f"a window was not computed: {output.error}")
        for token, position in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True):
            assert position is not None
            found.append(position[token].logprob)
    return found


def _latency(seconds: Callable[[list[int], int], float], prompt: list[int], output_len: int) -> tuple[float, float]:
    """Medians: seconds to the first token, and for each one after it, alone in the engine."""
    firsts, rests = [], []
    for _ in range(1 + ROUNDS):
        first, whole = seconds(prompt, 1), seconds(prompt, output_len)
        firsts.append(first)
        rests.append((whole - first) / (output_len - 1))
    return statistics.median(firsts[1:]), statistics.median(rests[1:])


def _seconds(llm: LLM, prompt: list[int], num_tokens: int) -> float:
    params = SamplingParams(max_tokens=num_tokens, temperature=0.0, ignore_eos=True, detokenize=False)
    start = time.perf_counter()
    prompts: list[Prompt] = [{"prompt_token_ids": prompt}]
    llm.generate(prompts, params, use_tqdm=False)
    return time.perf_counter() - start


def cells(row: Row, first: Row) -> tuple[str, ...]:
    """What stands under the titles; perplexity beside its distance from the first row's."""
    return (
        row.model,
        str(row.num_tokens),
        f"{row.size_bytes / 1e6:.1f}",
        f"{row.memory_bytes / 1e6:.1f}",
        f"{1000 * row.ttft_s:.1f}",
        f"{1000 * row.tpot_s:.2f}",
        f"{row.perplexity:.3f}",
        f"{100 * (row.perplexity / first.perplexity - 1):+.2f} %",
        f"{row.bits_per_byte:.4f}",
    )


def line(words: tuple[str, ...], models: list[str]) -> str:
    """Under each other: the first column is as wide as the longest model, the others as their titles and at least as 9 letters."""
    width = max(len(TITLES[0]), *map(len, models))
    return "  ".join([words[0].ljust(width), *(word.rjust(max(9, len(title))) for word, title in zip(words[1:], TITLES[1:], strict=True))])
