"""Run: the server's life. The socket is bound first, probes are answered while the model loads, signals end it in order."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import FastAPI

from octavo import environment, logging
from octavo.config.observability import decide_log
from octavo.config.options import Options, ServerOptions
from octavo.config.resolve import resolve
from octavo.engine.client import AsyncEngineClient
from octavo.engine.connection import Connection
from octavo.errors import ConfigError, OctavoError, OverloadedError
from octavo.frontend.async_llm import AsyncLLM
from octavo.server import tls
from octavo.server.app import create_app, routes
from octavo.server.http_server import http_server
from octavo.server.listener import Listener, listen
from octavo.server.ready_block import ready_block
from octavo.server.state import Phase, ServerState

logger = logging.get_logger(__name__)
Result = TypeVar("Result")

LINGER_S = 5.0  # how long a server without an engine answers 503 before it ends
OPEN_FILES = 65_536
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
STOPPING = "the server is shutting down"

Start = Callable[[], Awaitable[AsyncLLM]]


def serve(options: Options, server_options: ServerOptions, launched: Connection | None = None) -> int:
    """`octavo serve`: the exit code. Raises ConfigError, before anything is loaded, if the address cannot be had or its files are wrong.

    launched: to the engine's processes, where they are on their way already; the caller closes it.
    """
    _begin_log(options)

    async def start() -> AsyncLLM:
        config = await in_daemon_thread(lambda: resolve(options, "server"))
        llm = AsyncLLM(config, AsyncEngineClient(launched))
        await llm.start()
        return llm

    try:
        return run(server_options, start)
    except OctavoError as error:
        if not logging.writes_json():
            raise
        logger.error("%s", error)
        return EXIT_FAILED


def run(options: ServerOptions, start: Start, listening: Callable[[Listener], None] | None = None) -> int:
    """Serve until told to end; the exit code. `start` makes the engine while the server already answers probes.

    listening: called when the socket is there.
    """
    certificate = tls.tls_of(options)
    app = create_app(options)
    listener = listen(options)
    try:
        if listening is not None:
            listening(listener)
        listener.bequeath()
        _raise_file_limit()
        return _run(_Life(options, app, listener, certificate, start))
    finally:
        listener.close()


def _run(life: "_Life") -> int:
    runner = asyncio.Runner(loop_factory=_loop_factory())
    try:
        code = runner.run(life.run())
    finally:
        if life.is_loading_abandoned:  # a thread deep in a download or a load cannot be stopped; it ends with the process
            life.listener.close()
            sys.stderr.flush()
            os._exit(EXIT_INTERRUPTED)
        runner.close()
    if life.failure is not None:
        raise life.failure
    return code


class _Life:
    """From the first probe to the exit code."""

    def __init__(self, options: ServerOptions, app: FastAPI, listener: Listener, certificate: tls.Tls | None, start: Start) -> None:
        self.failure: OctavoError | None = None
        self.is_loading_abandoned = False
        self.listener = listener
        self._options = options
        self._tls = certificate
        self._start = start
        self._app = app
        self._state: ServerState = app.state.server
        self._http = http_server(app, options, certificate, self._abort_all)
        self._code = 0
        self._signals = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loading: asyncio.Task[None] | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        numbers = _signals()
        for number in numbers:
            loop.add_signal_handler(number, self._on_signal, number)
        serving = asyncio.ensure_future(self._http.serve(sockets=[self.listener.socket]))
        self._loading = self._spawn(self._load())
        if self._tls is not None and self._options.enable_ssl_refresh:
            self._spawn(self._tls.keep_fresh())
        self._log_routes()
        try:
            await serving
        finally:
            for task in list(self._tasks):
                task.cancel()
            if self._state.llm is not None:
                await self._state.llm.shutdown()
            for number in numbers:
                loop.remove_signal_handler(number)
        return self._code

    def _log_routes(self) -> None:
        logger.info("Starting octavo server on %s", self.listener.name)
        logger.info("Available routes are:")
        for path, methods in routes(self._app):
            logger.info("Route: %s, Methods: %s", path, ", ".join(methods))

    async def _load(self) -> None:
        try:
            llm = await self._start()
        except OctavoError as error:
            self.failure = error
            self._end(EXIT_FAILED)
            return
        except Exception:
            logger.exception("the engine could not be started")
            self._end(EXIT_FAILED)
            return
        self._state.attach(llm)
        if logging.writes_json():
            logger.info("ready at %s", self.listener.address("https" if self._options.ssl_certfile else "http"))
        else:
            print(ready_block(self._options, self.listener, llm), file=sys.stderr, flush=True)
        self._spawn(self._watch(llm))

    async def _watch(self, llm: AsyncLLM) -> None:
        """When the engine dies: no request is taken, and after a while in which probes can see it the server ends."""
        await llm.dead.wait()
        self._state.phase = Phase.DEAD
        if environment.keep_alive_on_engine_death():
            logger.error("the engine has died; the server stays, and answers 503")
            return
        logger.error("the engine has died; the server ends in %g s", LINGER_S)
        await asyncio.sleep(LINGER_S)
        self._end(EXIT_FAILED)

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        if self._signals > 2:
            os._exit(EXIT_INTERRUPTED)
        if self._signals == 2:
            self._force()
        elif self._loading is not None and not self._loading.done():
            _say("stopping before the model is loaded")
            self.is_loading_abandoned = True
            self._loading.cancel()
            self._end(EXIT_INTERRUPTED)
        else:
            self._spawn(self._drain())

    async def _drain(self) -> None:
        """Take nothing new, let what runs finish within the time that is allowed, end the rest with an error."""
        llm = self._state.llm
        if llm is None or llm.errored:
            self._end(EXIT_FAILED)
            return
        self._state.phase = Phase.DRAINING
        timeout = self._options.shutdown_timeout
        if self._num_open:
            count = max(llm.num_unfinished, 1)
            _say(f"finishing {count} requests (at most {timeout:g} s), Ctrl-C again to stop now")
            if not await self._finished(llm, timeout):
                logger.warning("%d requests did not finish in %g s", self._num_open, timeout)
        self._abort_all()
        self._end(EXIT_FAILED if llm.errored else 0)

    @property
    def _num_open(self) -> int:
        """Requests that the engine has, or that are on their way to it or back."""
        return max(self._state.llm.num_unfinished if self._state.llm is not None else 0, self._http.num_answering)

    async def _finished(self, llm: AsyncLLM, timeout_s: float) -> bool:
        end = asyncio.get_running_loop().time() + timeout_s
        while self._num_open and not llm.errored:
            left_s = end - asyncio.get_running_loop().time()
            if left_s <= 0 or not await llm.wait_for_requests_to_drain(left_s):
                return False
            if self._num_open:  # some are read, made tokens of, or written
                await asyncio.sleep(min(0.02, left_s))
        return True

    def _abort_all(self) -> None:
        if self._state.llm is not None:
            self._state.llm.abort_all(OverloadedError(STOPPING))

    def _force(self) -> None:
        _say("stopping now")
        self._abort_all()
        self._http.force_exit = True
        self._end(EXIT_INTERRUPTED)

    def _end(self, code: int) -> None:
        self._code = max(self._code, code)  # a drain that ends after a second signal does not undo it
        self._http.should_exit = True

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def in_daemon_thread(function: Callable[[], Result]) -> Result:
    """The result of a function that may take minutes, on a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def tell(setter: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            setter(value)

    def work() -> None:
        try:
            setter, value = future.set_result, function()
        except BaseException as error:
            setter, value = future.set_exception, error  # type: ignore[assignment]
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            loop.call_soon_threadsafe(tell, setter, value)

    threading.Thread(target=work, daemon=True, name="octavo-resolve").start()
    return await future


def _begin_log(options: Options) -> None:
    level, log = decide_log(options)
    try:
        logging.configure(level, "server", log)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"Python's logging cannot be configured as it is told: {error}", "its form is that of logging.config.dictConfig"
        ) from None


def _say(text: str) -> None:
    """A line for the one who sits before the server."""
    if logging.writes_json():
        logger.info("%s", text)
    else:
        print(text, file=sys.stderr, flush=True)


def _signals() -> list[signal.Signals]:
    """What ends the server in order: also the end of its terminal, unless nohup or the like says that it is to live on."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


def _raise_file_limit() -> None:
    """Each connection is an open file, and the usual limit of 1,024 is soon reached."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
