"""Our own OpenAPI document, taken at its word: what it allows and what it forbids is sent, and nothing makes the server fail."""

import contextlib
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from tests.server import fuzzed_server
from tests.server.mutations import SEEDS
from tests.server.real_server import TEXTS, RealServer

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]
SAMPLE, MANY = 300, 5000
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    server = fuzzed_server.start(tmp_path_factory.mktemp("script"))
    try:
        yield server.wait_ready()
    finally:
        server.close()


def test_answers_to_right_requests_are_as_the_document_says(server: RealServer) -> None:
    """Whole and streamed."""
    document = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [operation for found in document.get_all_operations() if (operation := found.ok()).body]
    assert len(operations) >= 2
    for operation in operations:
        for body in SEEDS[operation.path]:
            response = operation.Case(body=body).call_and_validate(checks=CHECKS, timeout=TIMEOUT_S)
            assert response.status_code == 200


@pytest.mark.parametrize("count", [SAMPLE, pytest.param(MANY, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_no_request_makes_the_server_fail(server: RealServer, count: int) -> None:
    assert send(server, count) >= count
    server.wait_idle()
    said = server.post("/v1/chat/completions", messages=[{"role": "user", "content": "say t"}]).json()
    assert said["choices"][0]["message"]["content"] == TEXTS["t"]
    assert not server.faults


def send(server: RealServer, count: int) -> int:
    """Send at least so many cases, shared among the operations that take something; how many were sent."""
    document = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [found.ok() for found in document.get_all_operations()]
    bodies = {
        f"{method.upper()} {path}"
        for path, each in document.raw_schema["paths"].items()
        for method in each
        if "requestBody" in each[method]
    }
    assert bodies == {operation.label for operation in operations if operation.body}
    taking = [operation for operation in operations if operation.body or operation.path_parameters or operation.query]
    for operation in operations:
        if operation not in taking:
            assert send_to(operation, GenerationMode.POSITIVE, 1) == 1
    weights = [8 if operation.body else 1 for operation in taking]
    sent = 0
    for operation, weight in zip(taking, weights, strict=True):
        share = count * weight // sum(weights) + 1
        forbidden = send_to(operation, GenerationMode.NEGATIVE, share // 2)
        sent += forbidden + send_to(operation, GenerationMode.POSITIVE, share - forbidden)
    return sent


def send_to(operation: Any, mode: GenerationMode, count: int) -> int:
    """So many cases, or all that there are."""
    sent = 0

    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    @hypothesis.settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    def one(case: Any) -> None:
        nonlocal sent
        sent += 1
        case.call_and_validate(checks=CHECKS, timeout=TIMEOUT_S)

    with contextlib.suppress(hypothesis.errors.Unsatisfiable):  # a path that nothing can be wrong with
        one()
    return sent
