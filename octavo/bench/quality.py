"""octavo bench quality MODEL...: size, memory, latency and perplexity of each, side by side, as a choice between them needs them.

Perplexity is of a text that the user names, in windows that know nothing of each other. Models whose tokenizers differ are compared by the
bits that a byte of the text takes.
"""

import dataclasses
import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from octavo import environment, logging
from octavo.bench.options import QualityOptions
from octavo.bench.result_file import write_json
from octavo.checkpoint import index as checkpoint_index
from octavo.config.options import Options
from octavo.errors import ConfigError
from octavo.frontend.inputs import Prompt
from octavo.frontend.llm import LLM
from octavo.protocol.sampling_params import SamplingParams

ROUNDS = 3  # of the latency, after one that is not counted


@dataclass(frozen=True, slots=True)
class Row:
    """One model. size: of its tensors on disk; memory: of its weights when they are loaded. ttft: of a prompt of one window."""

    model: str
    size_bytes: int
    memory_bytes: int
    ttft_s: float
    tpot_s: float
    perplexity: float
    bits_per_byte: float
    num_tokens: int


def quality(options: QualityOptions, models: list[str], engine: Options) -> int:
    """Prints the table; the exit code. A model may be MODEL=SCHEME: quantized while it is loaded."""
    if options.window < 2 or options.output_len < 2 or options.tokens < options.window:
        raise ConfigError("--window and --output-len must be at least 2, and --tokens at least one window")
    if options.text is None:
        raise ConfigError("octavo bench quality needs --text FILE", "any text of some thousand words that the models have not been made of")
    try:
        text = Path(options.text).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"--text {options.text} cannot be read: {error}") from None
    logging.configure(environment.logging_level(), "bench")
    if engine.enable_prefix_caching is None:
        engine.enable_prefix_caching = False
    rows = []
    for word in models:
        model, _, scheme = word.partition("=")
        one = dataclasses.replace(engine, model=model, quantization=scheme or engine.quantization)
        rows.append(measure(word, one, text, options))
    print(table(rows))
    if options.output_json is not None:
        write_json(options.output_json, {"text": options.text, "models": [dataclasses.asdict(row) for row in rows]})
    return 0


def measure(name: str, engine: Options, text: str, options: QualityOptions) -> Row:
    """Start one model and take its figures."""
    with LLM.from_options(engine) as llm:
        # tokens of a text are shorter than 16 characters on the whole: a long file need not be tokenized to its end
        ids = llm.get_tokenizer().encode(text[: 16 * options.tokens])[: options.tokens]
        windows = [ids[start : start + options.window] for start in range(0, len(ids), options.window)]
        windows = [window for window in windows if len(window) > 1]
        if not windows:
            raise ConfigError(f"--text {options.text} is too short")
        ttft, tpot = _latency(llm, windows[0], options.output_len)
        logprobs = _logprobs(llm, windows)
        num_bytes = sum(len(llm.get_tokenizer().decode(window[1:]).encode()) for window in windows)
        size = checkpoint_index.read(Path(llm.config.model.path)).total_bytes
        mean = statistics.fmean(logprobs)
        bits = -math.fsum(logprobs) / math.log(2) / num_bytes
        return Row(name, size, llm.facts.weights_bytes, ttft, tpot, math.exp(-mean), bits, len(logprobs))


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


def _latency(llm: LLM, prompt: list[int], output_len: int) -> tuple[float, float]:
    """Medians: seconds to the first token, and for each one after it, alone in the engine."""
    firsts, rests = [], []
    for _ in range(1 + ROUNDS):
        first, whole = _seconds(llm, prompt, 1), _seconds(llm, prompt, output_len)
        firsts.append(first)
        rests.append((whole - first) / (output_len - 1))
    return statistics.median(firsts[1:]), statistics.median(rests[1:])


def _seconds(llm: LLM, prompt: list[int], num_tokens: int) -> float:
    params = SamplingParams(max_tokens=num_tokens, temperature=0.0, ignore_eos=True, detokenize=False)
    start = time.perf_counter()
    prompts: list[Prompt] = [{"prompt_token_ids": prompt}]
    llm.generate(prompts, params, use_tqdm=False)
    return time.perf_counter() - start


def table(rows: list[Row]) -> str:
    """A line for each model; perplexity beside its distance from the first one's."""
    titles = ("model", "size MB", "memory MB", "TTFT ms", "TPOT ms", "perplexity", "to the first", "bits/byte")
    lines = [titles]
    for row in rows:
        lines.append(
            (
                row.model,
                f"{row.size_bytes / 1e6:.1f}",
                f"{row.memory_bytes / 1e6:.1f}",
                f"{1000 * row.ttft_s:.1f}",
                f"{1000 * row.tpot_s:.2f}",
                f"{row.perplexity:.3f}",
                f"{100 * (row.perplexity / rows[0].perplexity - 1):+.2f} %",
                f"{row.bits_per_byte:.4f}",
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    return "\n".join("  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines)
