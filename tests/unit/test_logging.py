"""Logging: one line a record that nothing in a message can forge, as text or JSON, and as the environment and the options say."""

import io
import json
import logging as standard
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo import logging
from octavo.config.observability import decide_log
from octavo.config.options import Options
from octavo.errors import ConfigError
from octavo.logging import LogSettings

FORGED = "name\nINFO 01-01 00:00:00 [core] all is well\r\x1b[2K\u2028end"


@pytest.fixture(autouse=True)
def undisturbed() -> Iterator[None]:
    """What a test configures is undone."""
    names = ("octavo", "py.warnings", "uvicorn")
    before = [(standard.getLogger(n), list(standard.getLogger(n).handlers), standard.getLogger(n).propagate) for n in names]
    level = standard.getLogger("octavo").level
    yield
    standard.captureWarnings(False)
    for logger, handlers, propagates in before:
        logger.handlers[:] = handlers
        logger.propagate = propagates
    standard.getLogger("octavo").setLevel(level)


def lines(monkeypatch: pytest.MonkeyPatch, settings: LogSettings, level: str = "INFO", stream: str = "stderr") -> Any:
    """A function that gives what was written since the configuration."""
    written = io.StringIO()
    monkeypatch.setattr(sys, stream, written)
    logging.configure(level, "tested", settings)
    return lambda: written.getvalue().splitlines()


def test_text_says_level_time_process_and_message(monkeypatch: pytest.MonkeyPatch) -> None:
    told = lines(monkeypatch, LogSettings(prefix="[node 3] "))
    logging.get_logger("octavo.somewhere").info("%d tokens", 7)
    logging.get_logger("octavo.somewhere").debug("not told")
    (line,) = told()
    assert line.startswith("INFO ")
    assert line.endswith(" [tested] [node 3] 7 tokens")


def test_what_a_request_says_cannot_forge_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    told = lines(monkeypatch, LogSettings())
    logger = logging.get_logger("octavo.somewhere")
    logger.warning("model %s", FORGED)
    try:
        raise ValueError(FORGED)
    except ValueError:
        logger.exception("it failed")
    first, second, *rest = told()
    assert first.endswith("model name\\nINFO 01-01 00:00:00 [core] all is well\\r\\x1b[2K\\u2028end")
    assert second.endswith("[tested] it failed")
    assert len(rest) >= 4
    assert all(line.startswith("    ") for line in rest)


def test_json_is_an_object_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    told = lines(monkeypatch, LogSettings(format="json", prefix="p "))
    logger = logging.get_logger("octavo.somewhere")
    token = logging.request_id.set("request-1")
    logger.warning("model %s", FORGED)
    logging.request_id.reset(token)
    try:
        raise ValueError("why")
    except ValueError:
        logger.exception("it failed")
    logger.info("of another", extra={"request_id": "request-2"})
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.configure("INFO", "tested", LogSettings(format="json"))  # catch_warnings has put Python's own way back
        warnings.warn("old ways", UserWarning, stacklevel=1)
        standard.captureWarnings(False)
    first, second, third, fourth = (json.loads(line) for line in told())
    assert (first["level"], first["process"], first["logger"]) == ("WARNING", "tested", "octavo.somewhere")
    assert first["message"] == f"p model {FORGED}"
    assert first["request_id"] == "request-1"
    assert first["pid"] == os.getpid()
    assert first["time"].endswith("+00:00")
    assert second["exception"].endswith("ValueError: why")
    assert "request_id" not in second
    assert third["request_id"] == "request-2"
    assert "old ways" in fourth["message"]
    assert logging.writes_json()


def test_other_libraries_write_where_octavo_does(monkeypatch: pytest.MonkeyPatch) -> None:
    told = lines(monkeypatch, LogSettings(format="json"))
    logging.adopt("uvicorn", "INFO")
    standard.getLogger("uvicorn.access").info("GET /")
    (line,) = told()
    assert json.loads(line)["logger"] == "uvicorn.access"


def test_the_stream_and_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    told = lines(monkeypatch, LogSettings(stream="stdout"), "debug", "stdout")
    logging.get_logger("octavo.x").debug("seen")
    assert len(told()) == 1


def test_colors_are_those_of_the_level_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    told = lines(monkeypatch, LogSettings(is_colored=True))
    logger = logging.get_logger("octavo.x")
    logger.info("plain")
    logger.error("red")
    plain, red = told()
    assert plain.startswith("INFO ")
    assert red.startswith("\x1b[31mERROR\x1b[0m ")
    monkeypatch.setenv("OCTAVO_LOGGING_COLOR", "1")
    assert decide_log(Options())[1].is_colored
    monkeypatch.setenv("OCTAVO_LOGGING_COLOR", "0")
    assert not decide_log(Options())[1].is_colored


def test_python_s_own_configuration_stands_instead(tmp_path: Path) -> None:
    path = tmp_path / "own.log"
    handlers = {"file": {"class": "logging.FileHandler", "filename": str(path), "formatter": "own"}}
    settings = {"version": 1, "disable_existing_loggers": False, "formatters": {"own": {"format": "own %(message)s"}}}
    settings |= {"handlers": handlers, "loggers": {"octavo": {"handlers": ["file"], "level": "INFO", "propagate": False}}}
    logging.configure("ERROR", "tested", LogSettings(dictionary=settings))
    logging.get_logger("octavo.x").info("message")
    logging.adopt("uvicorn")  # is left as the configuration has it
    handler = standard.getLogger("octavo").handlers[0]
    handler.close()
    assert path.read_text() == "own message\n"
    assert handler not in standard.getLogger("uvicorn").handlers
    with pytest.raises(ValueError):
        logging.configure("INFO", "tested", LogSettings(dictionary={"version": 9}))


def test_nothing_is_touched_where_that_is_asked() -> None:
    before = list(standard.getLogger("octavo").handlers)
    logging.configure("INFO", "tested", LogSettings(is_configured=False))
    assert standard.getLogger("octavo").handlers == before


def test_the_environment_and_the_options_decide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert decide_log(Options()) == ("INFO", LogSettings())
    path = tmp_path / "log.json"
    path.write_text('{"version": 1}')
    for name, value in (("LEVEL", "warning"), ("PREFIX", "p "), ("STREAM", "ext://sys.stdout"), ("CONFIG_PATH", str(path))):
        monkeypatch.setenv(f"VLLM_LOGGING_{name}", value)
    assert decide_log(Options()) == ("WARNING", LogSettings(prefix="p ", stream="stdout", dictionary={"version": 1}))
    given = {"log_level": "ERROR", "formatter": "json"}
    assert decide_log(Options(logging_config=given))[0] == "ERROR"
    assert decide_log(Options(logging_config=given, log_level="DEBUG"))[0] == "DEBUG"
    assert decide_log(Options(logging_config=given))[1].format == "json"
    assert decide_log(Options(log_format="json"))[1].format == "json"
    monkeypatch.delenv("VLLM_LOGGING_CONFIG_PATH")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("OCTAVO_CONFIGURE_LOGGING", "0")
    assert not decide_log(Options())[1].is_configured


@pytest.mark.parametrize(
    ("options", "variables", "word"),
    [
        ({"logging_config": {"level": "INFO"}}, {}, "log_level"),
        ({"logging_config": {"formatter": "xml"}}, {}, "xml"),
        ({}, {"OCTAVO_LOGGING_LEVEL": "LOUD"}, "LOUD"),
        ({}, {"OCTAVO_LOGGING_STREAM": "file"}, "ext://sys.stderr"),
        ({}, {"OCTAVO_LOGGING_CONFIG_PATH": "/nonexistent/file"}, "cannot be read"),
        ({}, {"OCTAVO_LOGGING_CONFIG_PATH": __file__}, "not JSON"),
        ({}, {"OCTAVO_LOGGING_CONFIG_PATH": __file__, "OCTAVO_CONFIGURE_LOGGING": "0"}, "leave OCTAVO_CONFIGURE_LOGGING=0 away"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, Any], variables: dict[str, str], word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=word):
        decide_log(Options(**options))


def test_a_child_that_fails_early_says_so_in_its_log() -> None:
    """What a process raises before it has its configuration is not lost."""
    code = "import socket; from octavo.engine.child import main; a, b = socket.socketpair(); c, d = socket.socketpair(); "
    code += "main(['worker.none', str(a.fileno()), str(c.fileno()), '[\"/nowhere\"]'])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert "the process fails" in result.stderr
    assert "Traceback" in result.stderr
