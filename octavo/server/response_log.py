"""Response log: every answer of the API in the log, where the environment asks for it. A stream is told piece by piece."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.logging import get_logger

logger = get_logger(__name__)


class ResponseLog:
    """Middleware, as plain ASGI."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        where = f"{scope['method']} {scope['path']}"

        async def send_and_tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                logger.info("answer to %s: %d", where, message["status"])
            elif body := message.get("body"):
                logger.info("answer to %s: %s", where, body.decode(errors="replace").rstrip())
            await send(message)

        await self._app(scope, receive, send_and_tell)
