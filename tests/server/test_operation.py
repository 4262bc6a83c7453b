"""Everything beside generation: health, models, metrics, ids, keys, errors of routing, sizes."""

import asyncio

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict

from octavo import __version__
from octavo.config.options import ServerOptions
from octavo.server.app import create_app
from octavo.server.state import Phase
from octavo.text.tokenizer import Tokenizer
from tests.server.serving import in_process

MESSAGES = [{"role": "user", "content": "hi"}]


async def test_a_server_without_an_engine_says_so(tokenizer: Tokenizer) -> None:
    app = create_app()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        for path in ("/health", "/ready", "/v1/models"):
            response = await http.get(path)
            assert response.status_code == 503
            assert response.headers["retry-after"] == "1"
            assert "loading" in response.json()["error"]["message"]
        assert (await http.post("/v1/completions", json={"prompt": "x"})).status_code == 503
        assert (await http.get("/version")).json() == {"version": __version__}
        assert (await http.get("/metrics")).status_code == 200


async def test_health_and_ready_through_a_server_s_life(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        assert [(await served.http.get(p)).status_code for p in ("/health", "/ready")] == [200, 200]
        served.app.state.server.phase = Phase.DRAINING
        assert [(await served.http.get(p)).status_code for p in ("/health", "/ready")] == [200, 503]
        refused = await served.post("/v1/chat/completions", messages=MESSAGES)
        assert refused.status_code == 503
        assert refused.json()["error"]["type"] == "ServiceUnavailableError"
        served.app.state.server.phase = Phase.READY
        served.client.kill()
        await served.llm.dead.wait()
        assert [(await served.http.get(p)).status_code for p in ("/health", "/ready")] == [503, 503]
        assert (await served.post("/v1/chat/completions", messages=MESSAGES)).status_code == 500
        metrics = (await served.http.get("/metrics")).text
        assert 'vllm:num_requests_running{engine="0",model_name="scripted"} 0.0' in metrics


async def test_models_are_listed_and_found(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        listed = (await served.http.get("/v1/models")).json()
        assert listed["object"] == "list"
        assert [m["id"] for m in listed["data"]] == ["scripted", "other-name"]
        assert listed["data"][0]["max_model_len"] == 256
        assert (await served.http.get("/v1/models/other-name")).json()["id"] == "other-name"
        missing = await served.http.get("/v1/models/org/else")
        assert missing.status_code == 404
        assert missing.json()["error"]["param"] == "model"
        assert (await served.post("/v1/chat/completions", model="other-name", messages=MESSAGES)).json()["model"] == "other-name"


async def test_metrics_tell_the_series_that_dashboards_read(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        await served.post("/v1/chat/completions", messages=MESSAGES)
        text = (await served.http.get("/metrics")).text
        openmetrics = await served.http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name: family for family in strict(openmetrics.text)}
    assert {s.name for s in families["vllm:prompt_tokens"].samples} == {"vllm:prompt_tokens_total", "vllm:prompt_tokens_created"}
    assert {"http_requests", "process_cpu_seconds", "python_info", "vllm:time_to_first_token_seconds"} <= families.keys()
    labels = '{engine="0",model_name="scripted"}'
    tokens = len(tokenizer.encode("hello world")) + 1
    for line in (
        f"vllm:num_requests_running{labels} 0.0",
        f"vllm:num_requests_waiting{labels} 0.0",
        f"vllm:kv_cache_usage_perc{labels} 0.0",
        f"vllm:num_preemptions_total{labels} 0.0",
        f"vllm:prefix_cache_queries_total{labels} 0.0",
        f"vllm:prefix_cache_hits_total{labels} 0.0",
        f"vllm:prompt_tokens_total{labels} 0.0",
        f"vllm:generation_tokens_total{labels} {float(tokens)}",
        'vllm:request_success_total{engine="0",finished_reason="stop",model_name="scripted"} 1.0',
        f"vllm:time_to_first_token_seconds_count{labels} 1.0",
        f"vllm:inter_token_latency_seconds_count{labels} {float(tokens - 1)}",
        f"vllm:e2e_request_latency_seconds_count{labels} 1.0",
        f"vllm:request_queue_time_seconds_count{labels} 1.0",
        f"vllm:request_prefill_time_seconds_count{labels} 1.0",
        f"vllm:request_decode_time_seconds_count{labels} 1.0",
        f"vllm:request_prompt_tokens_count{labels} 1.0",
        f"vllm:request_generation_tokens_sum{labels} {float(tokens)}",
        f"vllm:iteration_tokens_total_count{labels} {float(tokens)}",
    ):
        assert line in text, line
    assert "vllm:cache_config_info{" in text
    assert 'num_gpu_blocks="64"' in text


async def test_every_answer_has_a_request_id_and_a_client_s_own_is_kept(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        own = await served.http.post("/v1/chat/completions", json={"messages": MESSAGES}, headers={"x-request-id": "mine"})
        both = await asyncio.gather(
            *(served.http.post("/v1/chat/completions", json={"messages": MESSAGES}, headers={"x-request-id": "same"}) for _ in range(2))
        )
        new = await served.http.get("/health")
        wrong = await served.post("/v1/chat/completions")
    assert own.headers["x-request-id"] == "mine"
    assert own.json()["id"] == "chatcmpl-mine"
    assert [b.json()["choices"][0]["message"]["content"] for b in both] == ["hello world"] * 2
    assert len(new.headers["x-request-id"]) == 32
    assert wrong.headers["x-request-id"]


async def test_a_key_guards_the_api_and_nothing_else(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_API_KEY", "from-environment")
    for options, key in ((ServerOptions(api_key=["one", "two"]), "two"), (None, "from-environment")):
        async with in_process(tokenizer, options=options) as served:
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": key}, {"authorization": f"Basic {key}"}):
                response = await served.http.get("/v1/models", headers=headers)
                assert response.status_code == 401
                assert response.json()["error"]["code"] == 401
            assert (await served.http.get("/v1/models", headers={"authorization": f"bearer {key}"})).status_code == 200
            assert (await served.http.get("/health")).status_code == 200
            assert (await served.http.get("/metrics")).status_code == 200


async def test_errors_of_routing_have_the_same_form(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        missing = await served.http.get("/v1/nothing")
        wrong = await served.http.get("/v1/chat/completions")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, 404)
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (405, "MethodNotAllowedError")


async def test_a_body_that_is_too_large_is_413(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_HTTP_MAX_REQUEST_BODY_SIZE", "2000")
    async with in_process(tokenizer) as served:
        assert (await served.post("/v1/completions", prompt="x" * 3000)).status_code == 413
        assert (await served.post("/v1/completions", prompt="x")).status_code == 200


async def test_an_error_of_ours_is_500_without_its_text(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_process(tokenizer) as served:
        monkeypatch.setattr(served.llm, "add_request", None)
        response = await served.post("/v1/completions", prompt="x")
    assert response.status_code == 500
    assert "NoneType" not in response.text


async def test_the_api_s_description_names_the_fields(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        described = (await served.http.get("/openapi.json")).json()
    for path, field in (("/v1/chat/completions", "messages"), ("/v1/completions", "prompt")):
        schema = described["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert field in schema["properties"]
