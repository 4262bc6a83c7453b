"""State: what the server is doing (starting, ready, draining, dead), and the engine behind it."""

import asyncio
import enum
import time
from dataclasses import dataclass, field

from octavo.config.options import ServerOptions
from octavo.errors import ConfigError, EngineDeadError, OverloadedError, RequestError
from octavo.frontend.async_llm import AsyncLLM
from octavo.server import fingerprint as fingerprints
from octavo.server.http_metrics import HttpMetrics
from octavo.server.process_metrics import ProcessMetrics
from octavo.server.request_log import RequestLog
from octavo.text.chat_template import check_variables


class Phase(enum.Enum):
    """What a server can do now."""

    STARTING = "the model is loading"
    READY = "ready"
    DRAINING = "the server is shutting down"
    DEAD = "the engine has died"


@dataclass
class ServerState:
    """One object for a server's whole life; every endpoint reads it."""

    options: ServerOptions
    llm: AsyncLLM | None = None
    phase: Phase = Phase.STARTING
    started_s: int = field(default_factory=lambda: int(time.time()))
    http_metrics: HttpMetrics = field(default_factory=HttpMetrics)
    process_metrics: ProcessMetrics = field(default_factory=ProcessMetrics)
    fingerprint: str | None = None
    load: int = 0  # requests that are being answered, if they are counted
    request_log: RequestLog = field(init=False)

    def __post_init__(self) -> None:
        fingerprints.check(self.options)
        try:
            check_variables(self.options.default_chat_template_kwargs)
        except RequestError as error:
            raise ConfigError(f"--default-chat-template-kwargs: {error.fact}") from None
        self.request_log = RequestLog(self.options)

    def attach(self, llm: AsyncLLM) -> None:
        """The engine is up."""
        self.llm = llm
        self.fingerprint = fingerprints.fingerprint(self.options, llm.config)
        self.phase = Phase.READY

    @property
    def is_alive(self) -> bool:
        """The engine is there and has not died."""
        return self.llm is not None and not self.llm.errored and self.phase is not Phase.DEAD

    @property
    def is_ready(self) -> bool:
        """New requests are taken."""
        return self.is_alive and self.phase is Phase.READY

    def engine(self) -> AsyncLLM:
        """The engine, for one more request. Raises OverloadedError or EngineDeadError when there is none."""
        llm = self.llm
        if llm is not None and llm.errored:
            raise EngineDeadError(Phase.DEAD.value)
        if llm is None or self.phase is not Phase.READY:
            raise OverloadedError(self.phase.value, "try again later")
        return llm

    @property
    def model_names(self) -> list[str]:
        return [] if self.llm is None else self.llm.config.model.served_names


async def run_until(disconnected: asyncio.Task[None], work: asyncio.Task[object]) -> bool:
    """Wait for `work`; True if it is done, False if the client left first, and work was then cancelled."""
    await asyncio.wait({disconnected, work}, return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        disconnected.cancel()
        return True
    work.cancel()
    await asyncio.wait({work})
    return False
