"""run-batch: a batch file answered by an engine of its own, many lines at once, with everything kept that was answered.

The life of a run: the file is read, the journal of an earlier run taken over, the engine started if anything is left to do, each line
answered, and the answers delivered in the file's order. A signal ends it at any time; the same command then goes on.
"""

import asyncio
import contextlib
import dataclasses
import hashlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from octavo import environment, logging
from octavo.config.options import BatchOptions, Options, ServerOptions
from octavo.config.resolve import resolve
from octavo.errors import ConfigError, EngineDeadError
from octavo.frontend.async_llm import AsyncLLM
from octavo.server.api_keys import api_keys
from octavo.server.app import create_app
from octavo.server.batch import transfer
from octavo.server.batch.answers import answered, refused
from octavo.server.batch.journal import Journal, Owner
from octavo.server.batch.lines import BatchFile, Line
from octavo.server.batch.progress import Progress
from octavo.server.errors import RETRY_AFTER_S
from octavo.server.listener import Listener, listen
from octavo.server.run import EXIT_INTERRUPTED, in_daemon_thread

logger = logging.get_logger(__name__)

SYNC_S = 1.0  # answers of the last second may have to be computed again after a power cut
METRICS_APP = ("metrics", "health", "version")


def run(batch: BatchOptions, options: Options, server_options: ServerOptions) -> int:
    """The exit code: 0 when every line has its answer, be it an error; 130 when it was interrupted. Raises OctavoError."""
    logging.configure(environment.logging_level(), "batch")
    if batch.max_inflight is not None and batch.max_inflight < 1:
        raise ConfigError(f"--max-inflight must be at least 1, not {batch.max_inflight}")
    assert batch.input_file is not None
    assert batch.output_file is not None
    places = Places.of(batch.output_file, batch.output_tmp_dir)
    server_options = dataclasses.replace(server_options, disable_uvicorn_access_log=True)  # nobody accesses anything
    listener = listen(server_options) if batch.enable_metrics else None
    with contextlib.closing(listener) if listener else contextlib.nullcontext(), _local(batch.input_file) as path:
        if places.final is not None and places.final.exists() and path.samefile(places.final):
            raise ConfigError("the batch file and the output are one file", "choose another -o")
        source = BatchFile(path)
        with Journal(places.journal, Owner(source.digest, options.model)) as journal:
            if len(journal):
                print(f"going on: {len(journal)} of {source.total} lines were answered before", file=sys.stderr)
            if len(journal) < source.total and (code := _Run(source, journal, batch, options, server_options, listener).run()):
                print(f"interrupted: {len(journal)} of {source.total} lines are answered; the same command goes on", file=sys.stderr)
                return code
            places.deliver(journal)
            print(f"{len(journal)} lines answered, {journal.num_failed} of them with an error", file=sys.stderr)
    return 0


@dataclass(frozen=True, slots=True)
class Places:
    """Where answers are kept until all are there, and where they then go. final: None for an address."""

    journal: Path
    final: Path | None
    address: str | None

    @classmethod
    def of(cls, output: str, folder: str | None) -> "Places":
        """Beside the output, so that a run that goes on finds them; for what has no beside, in `folder` or octavo's own cache."""
        apart = Path(folder).expanduser() if folder else environment.cache_root() / "batches"
        if transfer.is_address(output):
            return cls(apart / f"{_digest(output)}.part", None, output)
        final = Path(output).expanduser().resolve()
        if final.is_dir() or not final.parent.is_dir():
            fact = f"{output} is a folder" if final.is_dir() else f"the folder {final.parent} does not exist"
            raise ConfigError(f"-o: {fact}", "name a file in a folder that exists")
        is_plain = not final.exists() or final.is_file()
        if is_plain and folder is None:
            return cls(final.with_name(f"{final.name}.part"), final, None)
        return cls(apart / f"{final.name}.{_digest(str(final))}.part", final, None)

    def deliver(self, journal: Journal) -> None:
        if self.final is not None:
            journal.copy_to(self.final)
        else:
            assert self.address is not None
            whole = self.journal.with_suffix(".jsonl")
            journal.copy_to(whole)
            transfer.send(whole, self.address)
            whole.unlink()
        journal.remove()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextlib.contextmanager
def _local(input_file: str) -> Iterator[Path]:
    """The batch file on this machine, fetched if it is an address."""
    if not transfer.is_address(input_file):
        yield Path(input_file).expanduser()
        return
    with tempfile.TemporaryDirectory(prefix="octavo-batch-") as folder:
        path = Path(folder) / "batch.jsonl"
        transfer.fetch(input_file, path)
        yield path


class _Run:
    """The part of a run that needs an engine."""

    def __init__(
        self,
        source: BatchFile,
        journal: Journal,
        batch: BatchOptions,
        options: Options,
        server_options: ServerOptions,
        listener: Listener | None,
    ) -> None:
        self._source = source
        self._journal = journal
        self._max_inflight = batch.max_inflight
        self._options = options
        self._server_options = server_options
        self._listener = listener
        self._llm: AsyncLLM | None = None
        self._num_signals = 0
        self._work: asyncio.Task[None] | None = None

    def run(self) -> int:
        """0, or 130 after a signal."""
        with asyncio.Runner() as runner:
            return runner.run(self._live())

    async def _live(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        self._work = asyncio.ensure_future(self._answer_all())
        try:
            await self._work
            return 0
        except asyncio.CancelledError:
            return EXIT_INTERRUPTED
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            if self._num_signals and self._llm is None:  # a download or a load cannot be stopped; it ends with the process
                self._journal.sync()
                print("stopped before the model was loaded", file=sys.stderr, flush=True)
                os._exit(EXIT_INTERRUPTED)
            if self._llm is not None:
                await self._llm.shutdown()
            self._journal.sync()

    def _on_signal(self) -> None:
        self._num_signals += 1
        if self._num_signals > 1:
            os._exit(EXIT_INTERRUPTED)
        if self._work is not None:
            self._work.cancel()

    async def _answer_all(self) -> None:
        config = await in_daemon_thread(lambda: resolve(self._options, "server"))
        llm = AsyncLLM(config)
        await llm.start()
        self._llm = llm
        app = create_app(self._server_options, llm)
        keys = api_keys(self._server_options)
        progress = Progress(self._source.total, len(self._journal), self._journal)
        lines = (line for line in self._source.lines() if line.number not in self._journal)
        inflight = self._max_inflight or 2 * config.scheduler.max_num_seqs
        async with _metrics(self._listener, app), _synced(self._journal):
            with progress:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(inflight, self._source.total)):
                        group.create_task(self._answer_some(app, llm, lines, keys[0] if keys else None, progress))

    async def _answer_some(self, app: FastAPI, llm: AsyncLLM, lines: Iterator[Line], key: str | None, progress: Progress) -> None:
        """One line after the other, from lines that other tasks take from too."""
        for line in lines:
            if line.fault is not None:
                self._journal.append(line.number, refused(line), True)
                await asyncio.sleep(0)
            else:
                status, answer = await answered(app, line, key)
                while status == 503 and not llm.errored:  # the queue is full
                    await asyncio.sleep(RETRY_AFTER_S)
                    status, answer = await answered(app, line, key)
                if llm.errored:
                    raise llm.dead_error or EngineDeadError("the engine has died")
                self._journal.append(line.number, answer, status >= 400)
            progress.show()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What went wrong first; the rest followed from it."""
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


@contextlib.asynccontextmanager
async def _synced(journal: Journal) -> AsyncIterator[None]:
    """Answers reach the disk every second."""

    async def sync() -> None:
        while True:
            await asyncio.sleep(SYNC_S)
            await asyncio.to_thread(journal.sync)

    task = asyncio.ensure_future(sync())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@contextlib.asynccontextmanager
async def _metrics(listener: Listener | None, app: FastAPI) -> AsyncIterator[None]:
    """Serve /metrics, /health and /version of the engine meanwhile."""
    if listener is None:
        yield
        return
    import importlib

    shown = FastAPI(title="octavo batch", docs_url=None, redoc_url=None, openapi_url=None)
    shown.state.server = app.state.server
    for name in METRICS_APP:
        shown.include_router(importlib.import_module(f"octavo.server.{name}").router)
    server = uvicorn.Server(uvicorn.Config(shown, log_config=None, lifespan="off", access_log=False))
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    print(f"metrics at {listener.address()}/metrics", file=sys.stderr, flush=True)
    serving = asyncio.ensure_future(server.serve(sockets=[listener.socket]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving
