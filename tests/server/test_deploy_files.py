"""The files in deploy/ start a server that exists, with options that exist, and probe paths that exist."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from octavo.cli.serve import parse
from octavo.server.app import create_app, routes

DEPLOY = Path(__file__).parents[2] / "deploy"
PATHS = {path for path, _ in routes(create_app())}


def test_kubernetes() -> None:
    documents = {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}
    pod: dict[str, Any] = documents["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    engine, server = parse([*_entry_point(), *container["args"]])
    assert (engine.model, server.host, server.port) == ("smollm2", "0.0.0.0", container["ports"][0]["containerPort"])
    assert pod["terminationGracePeriodSeconds"] > server.shutdown_timeout + 10
    probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert probes == {"startup": "/ready", "liveness": "/health", "readiness": "/ready"}
    assert {*probes.values(), "/metrics"} <= PATHS
    ports = documents["Service"]["spec"]["ports"]
    assert [port["targetPort"] for port in ports] == [container["ports"][0]["name"]]


def test_the_image_listens_on_all_addresses() -> None:
    _, server = parse(_entry_point())
    assert server.host == "0.0.0.0"
    assert "127.0.0.1:8000/health" in (DEPLOY / "Dockerfile").read_text()


def test_systemd_waits_longer_than_requests_may_take() -> None:
    text = (DEPLOY / "octavo.service").read_text()
    words = re.search(r"ExecStart=\S+/octavo serve (.*)", text)
    wait = re.search(r"TimeoutStopSec=(\d+)", text)
    assert words is not None
    assert wait is not None
    _, server = parse(words[1].split())
    assert server.guard_all_endpoints
    assert int(wait[1]) > server.shutdown_timeout + 10


def _entry_point() -> list[str]:
    found = re.search(r"^ENTRYPOINT (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert found is not None
    program, command, *words = json.loads(found[1])
    assert (program, command) == ("octavo", "serve")
    return words
