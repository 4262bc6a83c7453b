"""deploy/: the board and the alert rules read only series and labels that a real server has, and Prometheus itself takes them."""

import json
import math
import re
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.server.conftest import MAX_SEQS, QUEUE
from tests.server.ledger import read
from tests.server.promql import Selector, grouping_labels, selectors
from tests.server.real_server import RealServer

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRAPED = {"job", "instance"}  # added by Prometheus
VARIABLES = {"$model_name": ".*", "$job": ".*", "$instance": ".*"}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads((DEPLOY / "grafana.json").read_text())["panels"] if panel["type"] != "row"]


def queries(interval: str = "1m") -> list[tuple[str, str, str]]:
    """Panel, expression, legend, with the board's variables at "All"."""
    found = []
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", interval)
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            found.append((panel["title"], expression, target["legendFormat"]))
    return found


def expressions() -> list[tuple[str, str]]:
    return [(title, expression) for title, expression, _ in queries()] + [(rule["alert"], rule["expr"]) for rule in rules()]


def traffic(server: RealServer) -> None:
    """Something of everything that the board shows: hits, preemptions, several sequences, answers of 2xx, 4xx and 5xx."""
    shared = "a prompt that is longer than two blocks, so that others may find what they have in common: say "
    for number in range(2):
        assert server.post("/v1/completions", prompt=shared + "o", max_tokens=4, n=1 + number).status_code == 200
    assert server.post("/v1/completions", prompt="x", model="none").status_code == 404
    many = [f"{number} {shared}o" for number in range(MAX_SEQS)]
    assert server.post("/v1/completions", prompt=many, max_tokens=300).status_code == 200
    full = ["say o"] * (MAX_SEQS + QUEUE + 1)
    assert server.post("/v1/completions", prompt=full, max_tokens=50).status_code == 503


@pytest.fixture(scope="module")
def served(metered_server: RealServer) -> dict[str, dict[str, set[str]]]:
    """Every series of a server with traffic: its labels, and their values."""
    traffic(metered_server)
    found: dict[str, dict[str, set[str]]] = {"up": {}}
    for name, labels in read(metered_server.url):
        for label, value in labels:
            found.setdefault(name, {}).setdefault(label, set()).add(value)
        found.setdefault(name, {})
    return found


@pytest.mark.parametrize(("title", "expression"), expressions(), ids=range(len(expressions())))
def test_every_expression_reads_what_the_server_tells(title: str, expression: str, served: dict[str, dict[str, set[str]]]) -> None:
    reads = selectors(expression)
    assert reads, expression
    for selector in reads:
        assert selector.name in served, f"{title}: there is no {selector.name}"
        labels = served[selector.name]
        for label, operator, value in selector.matchers:
            assert label in labels or label in SCRAPED, f"{title}: {selector.name} has no label {label}"
            if operator == "=" and label not in SCRAPED:
                assert value in labels[label], f"{title}: {selector.name} has no {label}={value}"
    known = SCRAPED.union(*(served[selector.name] for selector in reads))
    assert grouping_labels(expression) <= known, title


def test_legends_and_annotations_name_labels_that_are_left() -> None:
    for title, expression, legend in queries():
        names = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", legend))
        assert names <= grouping_labels(expression) | ({"instance"} if expression.startswith(("process_", "rate(process_")) else set()), (
            title
        )
    for rule in rules():
        text = " ".join(rule["annotations"].values())
        names = set(re.findall(r"\$labels\.(\w+)", text))
        grouped = grouping_labels(rule["expr"])
        if "sum by" in rule["expr"]:
            assert names <= grouped, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {"summary", "description"} <= rule["annotations"].keys()


def test_the_board_is_whole() -> None:
    board = json.loads((DEPLOY / "grafana.json").read_text())
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)
    assert len({panel["title"] for panel in panels()}) == len(panels())
    places = [(panel["gridPos"]["x"] + dx, panel["gridPos"]["y"]) for panel in panels() for dx in range(panel["gridPos"]["w"])]
    assert len(set(places)) == len(places)  # no panel lies on another
    assert max(x for x, _ in places) < 24
    named = {variable["name"] for variable in board["templating"]["list"]}
    assert named == {"datasource", "job", "instance", "model_name"}


def test_expressions_are_read_rightly() -> None:
    text = 'histogram_quantile(0.9, sum by (le, x) (rate(a:b_bucket{k=~"v.*", j!="1"}[5m]))) > 1e3 and c unless on (instance) d'
    assert selectors(text) == [Selector("a:b_bucket", (("k", "=~", "v.*"), ("j", "!=", "1"))), Selector("c", ()), Selector("d", ())]
    assert grouping_labels(text) == {"le", "x", "instance"}


# --- with Prometheus itself

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH (Debian: the package prometheus)")
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not on PATH (Debian: the package prometheus)"
)
ENGINE = 'instance="i", job="octavo", engine="0", model_name="m"'
BUCKETS = "_bucket{" + ENGINE + ', le="%s"}'


def histogram(name: str, slow_from: str) -> list[dict[str, str]]:
    """Ten observations a minute, all of them above `slow_from`."""
    return [
        {"series": f"{name}{BUCKETS % slow_from}", "values": "0x60"},
        {"series": f"{name}{BUCKETS % '160.0'}", "values": "0+10x60"},
        {"series": f"{name}{BUCKETS % '+Inf'}", "values": "0+10x60"},
    ]


def series(text: str, values: str) -> dict[str, str]:
    return {"series": text, "values": values}


# alert -> series that make it fire within an hour
FIRING: dict[str, list[dict[str, str]]] = {
    "OctavoDown": [series('up{job="octavo", instance="i"}', "0x60")],
    "OctavoNotReady": [series('up{job="octavo", instance="i"}', "1x60")],
    "OctavoRequestsFail": [
        series(f'vllm:request_success_total{{{ENGINE}, finished_reason="error"}}', "0+2x60"),
        series(f'vllm:request_success_total{{{ENGINE}, finished_reason="stop"}}', "0+98x60"),
    ],
    "OctavoHttpErrors": [
        series('http_requests_total{job="octavo", instance="i", status="5xx"}', "0+6x60"),
        series('http_requests_total{job="octavo", instance="i", status="2xx"}', "0+94x60"),
    ],
    "OctavoCorruptedLogits": [series(f"vllm:corrupted_requests_total{{{ENGINE}}}", "0+1x60")],
    "OctavoNoProgress": [
        series(f"vllm:num_requests_running{{{ENGINE}}}", "2x60"),
        series(f"vllm:generation_tokens_total{{{ENGINE}}}", "900x60"),
        series(f"vllm:prompt_tokens_total{{{ENGINE}}}", "500x60"),
    ],
    "OctavoQueueLong": [series(f"vllm:num_requests_waiting{{{ENGINE}}}", "21x60")],
    "OctavoQueueTimeHigh": histogram("vllm:request_queue_time_seconds", "10.0"),
    "OctavoFirstTokenSlow": histogram("vllm:time_to_first_token_seconds", "5.0"),
    "OctavoTokensSlow": histogram("vllm:inter_token_latency_seconds", "0.5"),
    "OctavoCacheFull": [series(f"vllm:kv_cache_usage_perc{{{ENGINE}}}", "0.96x60")],
    "OctavoPreemptions": [series(f"vllm:num_preemptions_total{{{ENGINE}}}", "0+60x60")],
    "OctavoManyAborts": [
        series(f'vllm:request_success_total{{{ENGINE}, finished_reason="abort"}}', "0+3x60"),
        series(f'vllm:request_success_total{{{ENGINE}, finished_reason="stop"}}', "0+7x60"),
    ],
    "OctavoRejections": [series('vllm:admission_rejections_total{instance="i", model_name="m", reason="max_num_queued_reqs"}', "0+1x60")],
    "OctavoFilesRunOut": [
        series('process_open_fds{job="octavo", instance="i"}', "900x60"),
        series('process_max_fds{job="octavo", instance="i"}', "1000x60"),
    ],
}
# a server that does well, for an hour
WELL = [
    series('up{job="octavo", instance="i"}', "1x60"),
    series(f"vllm:num_requests_running{{{ENGINE}}}", "3x60"),
    series(f"vllm:num_requests_waiting{{{ENGINE}}}", "2x60"),
    series(f"vllm:generation_tokens_total{{{ENGINE}}}", "0+900x60"),
    series(f"vllm:prompt_tokens_total{{{ENGINE}}}", "0+900x60"),
    series(f"vllm:kv_cache_usage_perc{{{ENGINE}}}", "0.9x60"),
    series(f"vllm:num_preemptions_total{{{ENGINE}}}", "0+1x60"),
    series(f"vllm:corrupted_requests_total{{{ENGINE}}}", "0x60"),
    series(f'vllm:request_success_total{{{ENGINE}, finished_reason="stop"}}', "0+99x60"),
    series(f'vllm:request_success_total{{{ENGINE}, finished_reason="abort"}}', "0+1x60"),
    series(f'vllm:request_success_total{{{ENGINE}, finished_reason="error"}}', "0x60"),
    series('http_requests_total{job="octavo", instance="i", status="2xx"}', "0+100x60"),
    series('http_requests_total{job="octavo", instance="i", status="5xx"}', "0x60"),
    series('vllm:admission_rejections_total{instance="i", model_name="m", reason="max_num_queued_reqs"}', "0x60"),
]


def test_every_rule_has_a_case_that_fires() -> None:
    assert set(FIRING) == {rule["alert"] for rule in rules()}


@pytest.mark.slow
@needs_promtool
def test_promtool_takes_the_files_and_each_alert_fires_when_it_should(tmp_path: Path) -> None:
    subprocess.run(["promtool", "check", "config", str(DEPLOY / "prometheus.yml")], check=True, capture_output=True)
    cases: list[dict[str, Any]] = []
    for alert, given in FIRING.items():
        fires = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
        expected = {"expr": fires, "eval_time": "59m", "exp_samples": [{"labels": "{}", "value": 1}]}
        cases.append({"interval": "1m", "input_series": given, "promql_expr_test": [expected]})
    cases.append({"interval": "1m", "input_series": WELL, "promql_expr_test": [{"expr": "ALERTS", "eval_time": "59m", "exp_samples": []}]})
    path = tmp_path / "tests.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(DEPLOY / "alerts.yml")], "evaluation_interval": "1m", "tests": cases}))
    result = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def prometheus(metered_server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Prometheus with the files of deploy/, scraping the server every second. Its url."""
    folder = tmp_path_factory.mktemp("prometheus")
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [metered_server.url.removeprefix("http://")]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(DEPLOY / "alerts.yml", folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = ["--config.file", "prometheus.yml", "--storage.tsdb.path", "data", "--web.listen-address", address]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(["prometheus", *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=log)
    url = f"http://{address}"
    try:
        _until(lambda: _answers(f"{url}/-/ready"), 60, lambda: (folder / "log").read_text())
        yield url
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.slow
@needs_prometheus
def test_prometheus_scrapes_loads_the_rules_and_answers_every_query_of_the_board(prometheus: str, metered_server: RealServer) -> None:
    url = prometheus
    _until(lambda: _value(url, 'up{job="octavo"}') == [1.0], 60)
    loaded = httpx.get(f"{url}/api/v1/rules").json()["data"]["groups"][0]["rules"]
    assert {rule["name"] for rule in loaded} == {rule["alert"] for rule in rules()}
    _until(lambda: all(rule["health"] == "ok" for rule in httpx.get(f"{url}/api/v1/rules").json()["data"]["groups"][0]["rules"]), 60)
    empty: dict[str, str] = {}

    def has_data() -> bool:
        traffic(metered_server)
        empty.clear()
        for title, expression, _ in queries("15s"):
            if not any(math.isfinite(value) for value in _value(url, expression)):
                empty[title] = expression
        return not empty

    _until(has_data, 90, lambda: str(empty))
    for title, expression, _ in queries("15s"):
        print(f"{title}: {_value(url, expression)[:3]}")
    names = set(httpx.get(f"{url}/api/v1/label/__name__/values").json()["data"])
    assert "vllm:prompt_tokens_total" in names
    assert not [name for name in names if name.startswith("vllm_")]


def _value(url: str, expression: str) -> list[float]:
    answer = httpx.get(f"{url}/api/v1/query", params={"query": expression}, timeout=20).json()
    assert answer["status"] == "success", answer
    return [float(each["value"][1]) for each in answer["data"]["result"]]


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def _until(is_true: Any, timeout_s: float, why: Any = lambda: "") -> None:
    end = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < end, why()
        select.select([], [], [], 0.2)
