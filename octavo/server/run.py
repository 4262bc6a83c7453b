"""Run: the server's life. The socket is bound first, probes are answered while the model loads, signals end it in order."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import uvicorn
from fastapi import FastAPI

from octavo import __version__, environment, logging
from octavo.config.observability import decide_log
from octavo.config.options import Options, ServerOptions
from octavo.config.resolve import resolve
from octavo.errors import ConfigError, OctavoError, OverloadedError
from octavo.frontend.async_llm import AsyncLLM
from octavo.server.app import api_keys, create_app
from octavo.server.state import Phase, ServerState

logger = logging.get_logger(__name__)
Result = TypeVar("Result")

LINGER_S = 5.0  # how long a server without an engine answers 503 before it ends
CLOSE_S = 5.0  # how long open connections get to take their last bytes
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130

Start = Callable[[], Awaitable[AsyncLLM]]


def serve(options: Options, server_options: ServerOptions) -> int:
    """`octavo serve`: the exit code. Raises ConfigError if the address cannot be had, before anything is loaded."""
    _begin_log(options)
    listener = bind(server_options.host, server_options.port)

    async def start() -> AsyncLLM:
        config = await in_daemon_thread(lambda: resolve(options, "server"))
        llm = AsyncLLM(config)
        await llm.start()
        return llm

    try:
        return run(server_options, listener, start)
    except OctavoError as error:
        if not logging.writes_json():
            raise
        logger.error("%s", error)
        return EXIT_FAILED


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ConfigError, with what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host} is in use", "stop what listens there, or pass another --port (0 = any free one)"
            ) from None
        raise ConfigError(f"{host}:{port} cannot be listened on: {error.strerror}", "pass another --host or --port") from None
    return listener


def run(options: ServerOptions, listener: socket.socket, start: Start) -> int:
    """Serve on `listener` until told to end; the exit code. `start` makes the engine while the server already answers probes."""
    runner = asyncio.Runner(loop_factory=_loop_factory())
    life = _Life(options, listener, start)
    try:
        code = runner.run(life.run())
    finally:
        if life.is_loading_abandoned:  # a thread deep in a download or a load cannot be stopped; it ends with the process
            sys.stderr.flush()
            os._exit(EXIT_INTERRUPTED)
        runner.close()
    if life.failure is not None:
        raise life.failure
    return code


class _Http(uvicorn.Server):
    """uvicorn without its signal handlers: ours know of the engine."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Life:
    """From the first probe to the exit code."""

    def __init__(self, options: ServerOptions, listener: socket.socket, start: Start) -> None:
        self.failure: OctavoError | None = None
        self.is_loading_abandoned = False
        self._options = options
        self._listener = listener
        self._start = start
        self._app: FastAPI = create_app(options)
        self._state: ServerState = self._app.state.server
        self._http = _Http(_http_config(self._app, options))
        self._code = 0
        self._signals = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loading: asyncio.Task[None] | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)
        serving = asyncio.ensure_future(self._http.serve(sockets=[self._listener]))
        self._loading = self._spawn(self._load())
        try:
            await serving
        finally:
            for task in list(self._tasks):
                task.cancel()
            if self._state.llm is not None:
                await self._state.llm.shutdown()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        return self._code

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
            logger.info("ready at %s", address(self._listener))
        else:
            print(ready_block(self._options, self._listener, llm), file=sys.stderr, flush=True)
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
        if count := llm.num_unfinished:
            _say(f"finishing {count} requests (at most {timeout:g} s), Ctrl-C again to stop now")
            if not await llm.wait_for_requests_to_drain(timeout):
                logger.warning("%d requests did not finish in %g s", llm.num_unfinished, timeout)
        llm.abort_all(OverloadedError(Phase.DRAINING.value))
        self._end(EXIT_FAILED if llm.errored else 0)

    def _force(self) -> None:
        _say("stopping now")
        if self._state.llm is not None:
            self._state.llm.abort_all(OverloadedError(Phase.DRAINING.value))
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


def ready_block(options: ServerOptions, listener: socket.socket, llm: AsyncLLM) -> str:
    """What the operator reads when the server can be used."""
    config, facts = llm.config, llm.facts
    url = f"{address(listener)}{options.root_path}/v1"
    name = config.model.served_names[0]
    key = " -H 'Authorization: Bearer '\"$OCTAVO_API_KEY\"" if api_keys(options) else ""
    body = f'{{"model": "{name}", "messages": [{{"role": "user", "content": "Say hello."}}]}}'
    together = f"{facts.max_concurrency:.2f}x requests of {facts.max_model_len:,} tokens, at most {config.scheduler.max_num_seqs} at once"
    lines = [
        "",
        f"octavo {__version__} is ready",
        f"  URL          {url}",
        f"  model        {name} ({config.model.model_type}, {config.model.dtype}) on {facts.device}",
        f"  context      {facts.max_model_len:,} tokens",
        f"  cache        {facts.cache_tokens:,} tokens, {facts.cache_bytes / 2**30:.2f} GiB",
        f"  concurrency  {together}",
        f"  try          curl {url}/chat/completions -H 'Content-Type: application/json'{key} -d '{body}'",
        "",
    ]
    if options.host in ("0.0.0.0", "::", "") and not api_keys(options):
        lines.insert(-1, "  warning      everyone who reaches this machine can use the server: pass --api-key, or --host 127.0.0.1")
    return "\n".join(lines)


def address(listener: socket.socket) -> str:
    """http://host:port as a client would write it: one on this machine, or, where OCTAVO_HOST_IP is set, one elsewhere."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = environment.host_ip() or "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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


def _http_config(app: FastAPI, options: ServerOptions) -> uvicorn.Config:
    logging.adopt("uvicorn")
    return uvicorn.Config(
        app,
        log_config=None,
        log_level=options.uvicorn_log_level,
        access_log=not options.disable_uvicorn_access_log,
        lifespan="off",
        timeout_keep_alive=environment.http_timeout_keep_alive_s(),
        timeout_graceful_shutdown=int(CLOSE_S),
        server_header=False,
    )


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


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
