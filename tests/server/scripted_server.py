"""A server process over a scripted engine, told through its standard input what happens to the engine: load, fail, die.

Usage: python -m tests.server.scripted_server PORT TIMEOUT_S FOLDER
"""

import asyncio
import sys
import threading
from pathlib import Path

from octavo import logging
from octavo.config.options import ServerOptions
from octavo.errors import MemoryPlanError
from octavo.frontend.async_llm import AsyncLLM
from octavo.protocol.messages import EngineOutputs
from octavo.server import run
from octavo.text.tokenizer import Tokenizer
from tests.unit.frontend.scripted import AsyncScriptedClient, ScriptedEngine, make_config, write_tokenizer


class PacedClient(AsyncScriptedClient):
    """A hundred tokens a second."""

    async def outputs(self) -> EngineOutputs:
        await asyncio.sleep(0.01)
        return await super().outputs()


def main() -> int:
    port, timeout_s, folder = int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    logging.configure("INFO", "server")
    tokenizer = Tokenizer.from_folder(write_tokenizer(folder))
    options = ServerOptions(port=port, shutdown_timeout=timeout_s)

    async def start() -> AsyncLLM:
        client = PacedClient(ScriptedEngine(tokenizer, "a" * 200))
        orders: asyncio.Queue[str] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read() -> None:
            for line in sys.stdin:
                loop.call_soon_threadsafe(orders.put_nowait, line.strip())

        threading.Thread(target=read, daemon=True).start()
        if await orders.get() == "fail":
            raise MemoryPlanError("the model does not fit", "take a smaller one")
        llm = AsyncLLM(make_config(tokenizer), client, tokenizer)  # type: ignore[arg-type]
        await llm.start()

        async def obey() -> None:
            while await orders.get() == "die":
                client.kill()

        llm.obeying = asyncio.ensure_future(obey())  # type: ignore[attr-defined]
        return llm

    return run.run(options, start, lambda listener: print(listener.address(), flush=True))


if __name__ == "__main__":
    sys.exit(main())
