"""octavo bench serve: load on a server that is already running, and the table of what came of it."""

import asyncio
import collections
import datetime
import json
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo import environment
from octavo.bench import arrivals, backends, engine_side, figures, plots, result_file
from octavo.bench.http_client import Address, Client, RequestFailed, allow_many_connections
from octavo.bench.load import Outcome, Run, Sender, run
from octavo.bench.options import ServeOptions
from octavo.bench.sample import Sample, draw
from octavo.bench.table import engine_table, table
from octavo.bench.tokenizer import load as load_tokenizer
from octavo.errors import ConfigError, OctavoError
from octavo.frontend.progress import Bar, TerminalBar

READY_EVERY_S = 0.5
SHOWN_REASONS = 5


class ServerError(OctavoError, RuntimeError):
    """The server cannot be used for a run."""


@dataclass(slots=True)
class Settings:
    """What was typed, once it has been understood: nothing is asked of the server before that."""

    metrics: list[str]
    percentiles: list[float]
    goals: dict[str, float]
    thresholds_ms: tuple[float, float]
    address: Address
    headers: dict[str, str]

    @classmethod
    def of(cls, options: ServeOptions) -> "Settings":
        """Raises ConfigError."""
        if options.plot_timeline or options.plot_dataset_stats:
            plots.check()
        backends.endpoint(options)
        arrivals.check(options)
        result_file.metadata(options.metadata)
        return cls(
            figures.parse_metrics(options.percentile_metrics),
            figures.parse_percentiles(options.metric_percentiles),
            figures.parse_goals(options.goodput),
            plots.parse_thresholds(options.timeline_itl_thresholds),
            Address(options.base_url or _url(options.host, options.port), options.insecure),
            _headers(options.header),
        )


def serve(options: ServeOptions) -> int:
    """The exit code: 1 if no request succeeded. Raises ConfigError, or ServerError if there is no server to measure."""
    settings = Settings.of(options)
    allow_many_connections()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_Bench(options, settings).run())


class _Bench:
    """One run from the first question to the last line."""

    def __init__(self, options: ServeOptions, settings: Settings) -> None:
        self._options = options
        self._settings = settings
        self._client = Client(settings.address, settings.headers)
        if options.request_id_prefix is None:
            options.request_id_prefix = f"bench-{uuid.uuid4().hex[:8]}-"

    async def run(self) -> int:
        try:
            return await self._run()
        finally:
            await self._client.close()

    async def _run(self) -> int:
        options = self._options
        model = options.model or await self._first_model()
        tokenizer = None if options.skip_tokenizer_init else await asyncio.to_thread(load_tokenizer, options.tokenizer or model)
        if options.backend == "openai-chat":
            options.skip_chat_template = True  # the server renders the conversation
        samples = await asyncio.to_thread(draw, options, tokenizer)
        at_s = arrivals.times(options, samples)
        sender = Sender(self._client, options, options.served_model_name or model)
        await self._wait_ready(sender, samples[0])
        await self._warm_up(sender, samples[0])
        self._say(f"{len(samples)} requests to {self._settings.address.url}, {_described(options)}")
        before = await self._counters()
        progress = _Progress(len(samples), is_shown=not options.disable_tqdm)
        try:
            done = await run(sender, samples, at_s, options, progress.note)
        finally:
            progress.close()
        after = await self._counters()
        figures.count_unknown_outputs(done, None if tokenizer is None else lambda text: len(tokenizer.encode(text, False)))
        engine = after.since(before) if before is not None and after is not None else None
        self._report(done, samples, at_s, engine, model)
        return 0 if any(outcome.is_success for outcome in done.outcomes) else 1

    def _report(self, done: Run, samples: list[Sample], at_s: list[float], engine: engine_side.Counters | None, model: str) -> None:
        options, settings = self._options, self._settings
        found = figures.figures(done, settings.percentiles, settings.goals)
        speculation = None if engine is None else engine_side.Speculation.of(engine)
        print(table(options, found, settings.metrics, done.probes, speculation))
        if engine is not None:
            print(engine_table(engine_side.rows(engine, done.seconds)))
        sys.stdout.flush()
        for line in reasons(done.outcomes):
            print(line, file=sys.stderr)
        if not (options.save_result or options.append_result or options.plot_timeline or options.plot_dataset_stats):
            return
        file = result_file.path(options, model)
        if options.save_result or options.append_result:
            result = result_file.facts(options, model, options.tokenizer or model) | figures.result(found, settings.metrics)
            result |= result_file.details(done) | self._extras(done, engine, speculation, at_s)
            result_file.write(file, result, detailed=options.save_detailed, append=options.append_result)
            self._say(f"result: {file}")
        self._plot(file, done, samples)

    def _extras(
        self, done: Run, engine: engine_side.Counters | None, speculation: engine_side.Speculation | None, at_s: list[float]
    ) -> dict[str, Any]:
        """Parts of the result that not every run has."""
        extras: dict[str, Any] = {}
        if done.probes:
            extras |= figures.probe_result(done.probes)
        if self._options.ramp_up_strategy is not None:
            began = datetime.datetime.now() - datetime.timedelta(seconds=time.perf_counter() - done.start_s)
            extras["rps_change_events"] = [
                {"rps": rate, "timestamp": (began + datetime.timedelta(seconds=second)).isoformat()}
                for rate, second in arrivals.changes(self._options, at_s)
            ]
        if speculation is not None:
            extras |= speculation.result()
        if engine is not None:
            extras["engine"] = engine.values
        return extras

    def _plot(self, file: Path, done: Run, samples: Sequence[Sample]) -> None:
        stem = file.with_suffix("") if file.suffix == ".json" else file
        if self._options.plot_timeline:
            picture = stem.with_name(stem.name + ".timeline.png")
            plots.timeline(picture, done, self._settings.thresholds_ms)
            self._say(f"timeline: {picture}")
        if self._options.plot_dataset_stats:
            picture = stem.with_name(stem.name + ".dataset_stats.png")
            plots.dataset(picture, [s.num_prompt for s in samples], [s.num_output for s in samples])
            self._say(f"dataset: {picture}")

    # --- the server

    async def _first_model(self) -> str:
        """The first of /v1/models."""
        try:
            status, body = await self._client.get("/v1/models")
        except RequestFailed as error:
            raise ServerError(error.fact, "start one with `octavo serve smollm2`, or pass --host, --port or --base-url") from None
        try:
            return str(json.loads(body)["data"][0]["id"])
        except (ValueError, KeyError, IndexError, TypeError):
            said = body[:200].decode(errors="replace")
            raise ServerError(f"/v1/models answered {status}: {said}", "pass --model") from None

    async def _wait_ready(self, sender: Sender, sample: Sample) -> None:
        """Until one request is answered, for --ready-check-timeout-sec."""
        limit_s = self._options.ready_check_timeout_sec
        if limit_s <= 0:
            return
        end_s = time.monotonic() + limit_s
        while True:
            outcome = await sender.send(sample, "ready-")
            if outcome.is_success:
                return
            if time.monotonic() + READY_EVERY_S > end_s:
                raise ServerError(f"the server was not ready within {limit_s:g} s: {outcome.error}")
            await asyncio.sleep(READY_EVERY_S)

    async def _warm_up(self, sender: Sender, sample: Sample) -> None:
        """The first prompt again and again: it alone is in the prefix cache then."""
        count = self._options.num_warmups
        together = asyncio.Semaphore(self._options.max_concurrency or max(count, 1))

        async def one() -> Outcome:
            async with together:
                return await sender.send(sample, "warmup-")

        outcomes = await asyncio.gather(*(one() for _ in range(count)))
        if outcomes and not any(o.is_success for o in outcomes):
            raise ServerError(f"no warm-up request succeeded: {outcomes[0].error}", "the server's log may say why")

    async def _counters(self) -> engine_side.Counters | None:
        try:
            status, body = await self._client.get("/metrics")
        except RequestFailed:
            return None
        return engine_side.from_text(body.decode(errors="replace")) if status == 200 else None

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr)


def reasons(outcomes: Sequence[Outcome]) -> list[str]:
    """Why requests failed, the most frequent reason first."""
    counted = collections.Counter(outcome.error for outcome in outcomes if outcome.error)
    lines = [f"{count} failed: {reason}" for reason, count in counted.most_common(SHOWN_REASONS)]
    if (others := len(counted) - SHOWN_REASONS) > 0:
        lines.append(f"... and {others} more reasons: --save-result --save-detailed keeps them all")
    return lines


class _Progress:
    """A bar on standard error, in lines where that is no terminal."""

    def __init__(self, total: int, is_shown: bool) -> None:
        self._bar = None if not is_shown else TerminalBar(total) if sys.stderr.isatty() else Bar(total)
        self._start_s = time.monotonic()
        self._finished = self._tokens = self._failed = 0

    def note(self, outcome: Outcome) -> None:
        self._finished += 1
        self._failed += not outcome.is_success
        self._tokens += outcome.num_output or 0
        if self._bar is not None:
            rate = self._tokens / max(time.monotonic() - self._start_s, 1e-9)
            self._bar.show(self._finished, f"{rate:.1f} output tokens/s" + (f", {self._failed} failed" if self._failed else ""))

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _described(options: ServeOptions) -> str:
    """How they are sent, in a few words."""
    if options.dataset_name == "timed_trace" and options.self_timed is not False:
        words = ["at the times of the trace"]
    elif options.ramp_up_strategy is not None:
        words = [f"{options.ramp_up_strategy} from {options.ramp_up_start_rps:g} to {options.ramp_up_end_rps:g} a second"]
    elif options.request_rate == float("inf"):
        words = ["all due at once"]
    else:
        words = [f"{options.request_rate:g} a second, burstiness {options.burstiness:g}"]
    if options.max_concurrency is not None:
        words.append(f"at most {options.max_concurrency} at once")
    return ", ".join(words)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _headers(words: Sequence[str]) -> dict[str, str]:
    """The key of the environment, and what --header says over it."""
    key = environment.api_key() or environment.openai_api_key()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or any(c in name + value for c in "\r\n"):
            raise ConfigError(f"--header {word!r} is no NAME=VALUE")
        headers[name] = value
    return headers


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
