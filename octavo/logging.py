"""Logging: one logger a process, to standard error, with the process named in each line; text, or a JSON object a line.

What requests contain cannot forge a line: control characters are escaped, and what belongs to a line before it is indented.
"""

import json
import logging
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)  # of the request that the running task works on

_COLORS = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}
_FORMAT = "%(shown_level)s %(asctime)s [%(process_name)s] %(message)s"
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\t",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}
_CONTINUED = "    "


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """How a process writes its log; the same in all processes of an engine."""

    format: str = "text"  # or "json"
    prefix: str = ""  # before each message
    stream: str = "stderr"  # or "stdout"
    is_colored: bool = False
    is_configured: bool = True  # False: Python's logging is left as it is found
    dictionary: dict[str, Any] | None = None  # for logging.config.dictConfig, instead of all of the above


DEFAULT = LogSettings()


def get_logger(name: str) -> logging.Logger:
    """The logger of a module: pass `__name__`."""
    return logging.getLogger(name)


def configure(level: str = "INFO", process_name: str = "octavo", settings: LogSettings = DEFAULT) -> None:
    """Send octavo's records of at least `level` to standard error. Calling it again replaces the former set-up.

    Raises ValueError for a dictionary that logging.config does not take.
    """
    if not settings.is_configured:
        return
    if settings.dictionary is not None:
        from logging.config import dictConfig  # a tenth of the time in which `octavo --help` must answer

        dictConfig(settings.dictionary)
        return
    root = logging.getLogger("octavo")
    handler = logging.StreamHandler(sys.stdout if settings.stream == "stdout" else sys.stderr)
    handler.setFormatter(JsonLines(settings.prefix) if settings.format == "json" else TextLines(settings.prefix, settings.is_colored))
    handler.addFilter(_Origin(process_name))
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
    adopt("py.warnings")
    logging.captureWarnings(settings.format == "json")  # a warning in its own form is no line of JSON


def adopt(name: str, level: str | int | None = None) -> None:
    """Let the records of another library's logger go where octavo's go. Nothing happens if configure() has not decided where that is."""
    handlers = [handler for handler in logging.getLogger("octavo").handlers if isinstance(handler.formatter, (TextLines, JsonLines))]
    if not handlers:
        return
    other = logging.getLogger(name)
    other.handlers[:] = handlers
    other.propagate = False
    if level is not None:
        other.setLevel(level)


def writes_json() -> bool:
    """Whether lines for people would be out of place in the log."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger("octavo").handlers)


class TextLines(logging.Formatter):
    """Lines for people; one a record, and under it an exception, indented."""

    def __init__(self, prefix: str = "", is_colored: bool = False) -> None:
        super().__init__(_FORMAT, datefmt="%m-%d %H:%M:%S")
        self._prefix = prefix
        self._colors = _COLORS if is_colored else {}

    def formatMessage(self, record: logging.LogRecord) -> str:
        code = self._colors.get(record.levelname)
        record.shown_level = record.levelname if code is None else f"\x1b[{code}m{record.levelname}\x1b[0m"
        record.message = self._prefix + record.message.translate(_ESCAPES)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        lines = super().formatException(ei).splitlines()
        return "\n".join(_CONTINUED + line.translate(_ESCAPES) for line in lines)


class JsonLines(logging.Formatter):
    """One JSON object a record."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__()
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "process": getattr(record, "process_name", record.processName),
            "pid": record.process,
            "logger": record.name,
            "message": self._prefix + record.getMessage(),
        }
        if (own := getattr(record, "request_id", None)) is not None:
            told["request_id"] = own
        if record.exc_info and record.exc_info[0] is not None:
            told["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            told["stack"] = self.formatStack(record.stack_info)
        return json.dumps(told, ensure_ascii=True)


class _Origin(logging.Filter):
    """Adds the process, and the request where there is one."""

    def __init__(self, process_name: str) -> None:
        super().__init__()
        self._process_name = process_name

    def filter(self, record: logging.LogRecord) -> bool:
        record.process_name = self._process_name
        if not hasattr(record, "request_id"):
            record.request_id = request_id.get()
        return True
