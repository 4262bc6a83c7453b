"""Logging: one logger a process, to standard error, with the process named in each line."""

import logging
import sys

_FORMAT = "%(levelname)s %(asctime)s [%(process_name)s] %(message)s"


class _ProcessName(logging.Filter):
    def __init__(self, process_name: str) -> None:
        super().__init__()
        self.process_name = process_name

    def filter(self, record: logging.LogRecord) -> bool:
        record.process_name = self.process_name
        return True


def get_logger(name: str) -> logging.Logger:
    """The logger of a module: pass `__name__`."""
    return logging.getLogger(name)


def configure(level: str = "INFO", process_name: str = "octavo") -> None:
    """Send octavo's records of at least `level` to standard error. Calling it again replaces the former set-up."""
    root = logging.getLogger("octavo")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT, datefmt="%m-%d %H:%M:%S"))
    handler.addFilter(_ProcessName(process_name))
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
