"""What each dialect says of itself: health, models, load and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.simulator.dialects import DIALECTS
from gateway.simulator.server import Settings
from tests.gateway.simulator.dialect_calls import ENDLESS, SKY, settings
from tests.gateway.simulator.served import Served, serve

CHAT = "/v1/chat/completions"


async def page(engine: Served, path: str) -> Any:
    response = await engine.http.get(path)
    assert response.status_code == 200, response.text
    return response.json()


@asynccontextmanager
async def busy(dialect: str) -> AsyncGenerator[Served]:
    """An engine of one slot with one request in it and one that waits."""
    async with serve(Settings(dialect=dialect, models=("m",), pace=ENDLESS, context_tokens=1024)) as engine:
        tasks: list[asyncio.Task[Any]] = []
        for count in (1, 2):
            body = {"model": "m", "messages": SKY, "max_tokens": 20}
            tasks.append(asyncio.create_task(engine.http.post(CHAT, json=body)))
            await engine.until_open(count)
        yield engine
        for task in tasks:
            task.cancel()


@pytest.mark.parametrize(
    ("dialect", "path", "body"),
    [
        ("vllm", "/health", b""),
        ("tgi", "/health", b""),
        ("tgi", "/ping", b""),
        ("ollama", "/", b"Ollama is running"),
        ("lightllm", "/health", b'{"message":"Ok"}'),
        ("lightllm", "/healthz", b'{"message":"Ok"}'),
        ("lightllm", "/readiness", b'{"status":"ok"}'),
        ("sglang", "/health", b""),
        ("sglang", "/ready", b""),
        ("llamacpp", "/health", b'{"status":"ok"}'),
        ("llamacpp", "/v1/health", b'{"status":"ok"}'),
    ],
)
async def test_health(dialect: str, path: str, body: bytes) -> None:
    async with serve(settings(dialect)) as engine:
        response = await engine.http.get(path)
        assert (response.status_code, response.content) == (200, body)


async def test_a_head_of_a_page_has_no_body() -> None:
    async with serve(settings("ollama")) as engine:
        response = await engine.http.head("/")
        assert (response.status_code, response.headers["content-length"], response.content) == (200, "17", b"")


@pytest.mark.parametrize(
    ("dialect", "name", "owner", "context"),
    [
        ("vllm", "m", "vllm", 1024),
        ("tgi", "m", "m", None),
        ("ollama", "m:latest", "library", None),
        ("lightllm", "m", "lightllm", 1024),
        ("sglang", "m", "sglang", 1024),
        ("llamacpp", "m", "llamacpp", None),
        ("openai", "m", "system", None),
    ],
)
async def test_models(dialect: str, name: str, owner: str, context: int | None) -> None:
    async with serve(settings(dialect)) as engine:
        listed = await page(engine, "/v1/models")
        [model] = listed["data"]
        assert listed["object"] == "list"
        assert (model["id"], model["owned_by"], model.get("max_model_len")) == (name, owner, context)


@pytest.mark.parametrize(
    ("dialect", "server"),
    [
        ("vllm", "uvicorn"),
        ("sglang", "uvicorn"),
        ("lightllm", "hypercorn-h11"),
        ("llamacpp", "llama.cpp"),
        ("tgi", None),
    ],
)
async def test_the_server_header_is_the_engines(dialect: str, server: str | None) -> None:
    async with serve(settings(dialect)) as engine:
        assert (await engine.http.get("/v1/models")).headers.get("server") == server


async def test_vllm_load() -> None:
    async with busy("vllm") as engine:
        assert await page(engine, "/load") == {"server_load": 2}


async def test_tgi_info() -> None:
    async with serve(Settings(dialect="tgi", models=("m",), context_tokens=1024, max_queue=5)) as engine:
        info = await page(engine, "/info")
        assert info == await page(engine, "/")
        assert (info["model_id"], info["max_total_tokens"], info["max_concurrent_requests"]) == ("m", 1024, 13)


async def test_ollama_lists_its_models_with_tags() -> None:
    async with serve(Settings(dialect="ollama", models=("m", "big:7b"))) as engine:
        tags, loaded = (await page(engine, "/api/tags"))["models"], (await page(engine, "/api/ps"))["models"]
        assert [model["name"] for model in tags] == [model["name"] for model in loaded] == ["m:latest", "big:7b"]
        assert loaded[0]["context_length"] == 8192
        assert loaded[0]["size_vram"] == loaded[0]["size"]
        shown = await engine.http.post("/api/show", json={"model": "m"})
        assert "completion" in shown.json()["capabilities"]


@pytest.mark.parametrize(("name", "served"), [("m", True), ("m:latest", True), ("big:7b", True), ("big", False)])
async def test_the_tag_latest_may_be_left_out(name: str, served: bool) -> None:
    async with serve(Settings(dialect="ollama", models=("m", "big:7b"))) as engine:
        body = {"model": name, "messages": SKY, "max_tokens": 1}
        response = await engine.http.post(CHAT, json=body)
        assert response.status_code == (200 if served else 404)
        assert not served or response.json()["model"] == name


async def test_ollama_embeds() -> None:
    async with serve(settings("ollama")) as engine:
        body = {"model": "m", "input": ["a text", "another"], "dimensions": 4}
        answer = (await engine.http.post("/api/embed", json=body)).json()
        assert [len(vector) for vector in answer["embeddings"]] == [4, 4]
        assert (answer["model"], answer["prompt_eval_count"]) == ("m", 3)
        old = (await engine.http.post("/api/embeddings", json={"model": "m", "prompt": "a text"})).json()
        assert len(old["embedding"]) == 384


async def test_lightllm_token_load_rises_with_what_runs() -> None:
    async with busy("lightllm") as engine:
        load = await page(engine, "/token_load")
        assert 0 < load["current_load"] < load["dynamic_max_load"] == load["logical_max_load"] == 30 / 1024
        info = await page(engine, "/get_server_info")
        assert (info["running_max_req_size"], info["max_total_token_num"]) == (1, 1024)
        assert (await engine.http.post("/tokens", json={"text": "Hello world", "parameters": {}})).json() == {
            "ntokens": 2
        }


async def test_sglang_loads_and_info() -> None:
    async with busy("sglang") as engine:
        [load] = (await page(engine, "/v1/loads?include=core"))["loads"]
        assert (load["num_running_reqs"], load["num_waiting_reqs"], load["max_running_requests"]) == (1, 1, 1)
        assert load["num_used_tokens"] == 11
        info = await page(engine, "/server_info")
        assert info == await page(engine, "/get_server_info")
        assert (info["max_running_requests"], info["context_length"]) == (1, 1024)
        assert (await page(engine, "/model_info"))["is_generation"] is True


async def test_llamacpp_props_and_slots() -> None:
    async with serve(settings("llamacpp")) as engine:
        props = await page(engine, "/props")
        assert (props["total_slots"], props["default_generation_settings"]["n_ctx"]) == (8, 1024)
        slots = await page(engine, "/slots?fail_on_no_slot=1")
        assert [slot["is_processing"] for slot in slots] == [False] * 8
    async with busy("llamacpp") as engine:
        assert [slot["is_processing"] for slot in await page(engine, "/slots")] == [True]
        full = await engine.http.get("/slots?fail_on_no_slot=1")
        assert (full.status_code, full.json()["error"]["type"]) == (503, "unavailable_error")


@pytest.mark.parametrize(
    ("dialect", "body", "tokens"),
    [
        ("tgi", {"inputs": "Hello world"}, 2),
        ("sglang", {"prompt": "Hello world"}, 2),
        ("llamacpp", {"content": "Hello world", "with_pieces": True}, 2),
    ],
)
async def test_tokenize(dialect: str, body: dict[str, str], tokens: int) -> None:
    async with serve(settings(dialect)) as engine:
        answer: Any = (await engine.http.post("/tokenize", json=body)).json()
        assert len(answer if dialect == "tgi" else answer["tokens"]) == tokens


async def test_llamacpp_closes_after_a_stream_without_saying_so() -> None:
    async with serve(settings("llamacpp")) as engine:
        reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)

        async def ask(stream: bytes) -> bytes:
            data = b'{"messages":[{"role":"user","content":"Hi"}],"max_tokens":1,"stream":%b}' % stream
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(data)
            writer.write(head + data)
            return await reader.readuntil(b"\r\n\r\n")

        whole = await ask(b"false")
        length = int(whole.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        streamed = await ask(b"true")
        assert b"keep-alive: timeout=5, max=100" in streamed.lower()
        assert b"connection: close" not in streamed.lower()
        assert (await reader.read()).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        writer.close()


METRICS: dict[str, tuple[str, str, set[str]]] = {
    "vllm": (
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        {"vllm:kv_cache_usage_perc", "vllm:prompt_tokens", "vllm:generation_tokens", "vllm:request_success"}
        | {"vllm:time_to_first_token_seconds", "vllm:admission_rejections"},
    ),
    "tgi": (
        "tgi_batch_current_size",
        "tgi_queue_size",
        {"tgi_batch_current_max_tokens", "tgi_batch_max_total_tokens", "tgi_request_count", "tgi_request_success"}
        | {"tgi_request_failure", "tgi_request_duration", "tgi_request_queue_duration"}
        | {"tgi_request_inference_duration", "tgi_request_mean_time_per_token_duration"},
    ),
    "lightllm": (
        "lightllm_num_running_reqs",
        "lightllm_queue_size",
        {"lightllm_batch_current_size", "lightllm_batch_pause_size", "lightllm_batch_current_max_tokens"}
        | {"lightllm_cache_hit_rate", "lightllm_request_count", "lightllm_request_success"}
        | {"lightllm_request_failure", "lightllm_prompt_tokens", "lightllm_generation_tokens"}
        | {"lightllm_request_first_token_duration", "lightllm_request_inference_duration"}
        | {"lightllm_request_mean_time_per_token_duration"},
    ),
    "sglang": (
        "sglang:num_running_reqs",
        "sglang:num_queue_reqs",
        {"sglang:token_usage", "sglang:num_used_tokens", "sglang:max_total_num_tokens", "sglang:cache_hit_rate"}
        | {"sglang:prompt_tokens", "sglang:generation_tokens", "sglang:num_requests"}
        | {"sglang:time_to_first_token_seconds", "sglang:queue_time_seconds"},
    ),
    "llamacpp": (
        "llamacpp:requests_processing",
        "llamacpp:requests_deferred",
        {"llamacpp:prompt_tokens", "llamacpp:prompt_tokens_cached", "llamacpp:prompt_seconds"}
        | {"llamacpp:tokens_predicted", "llamacpp:tokens_predicted_seconds", "llamacpp:prompt_tokens_seconds"}
        | {"llamacpp:predicted_tokens_seconds"},
    ),
}
"""Running, waiting, and the other families; the parser takes ``_total`` off counters."""


async def families(engine: Served) -> dict[str, Any]:
    text = (await engine.http.get("/metrics")).text
    return {family.name: family for family in text_string_to_metric_families(text)}


@pytest.mark.parametrize("dialect", METRICS)
async def test_metrics_have_the_engines_names(dialect: str) -> None:
    running, waiting, others = METRICS[dialect]
    async with busy(dialect) as engine:
        found = await families(engine)
        assert set(found) == {running, waiting} | others
        assert [found[name].samples[0].value for name in (running, waiting)] == [1, 1]


@pytest.mark.parametrize(
    ("dialect", "histogram"),
    [
        ("tgi", "tgi_request_duration"),
        ("lightllm", "lightllm_request_first_token_duration"),
        ("sglang", "sglang:time_to_first_token_seconds"),
    ],
)
async def test_histograms_count_requests_in_the_engines_buckets(dialect: str, histogram: str) -> None:
    async with serve(settings(dialect)) as engine:
        for _ in range(3):
            await engine.http.post(CHAT, json={"model": "m", "messages": SKY, "max_tokens": 2})
        samples = (await families(engine))[histogram].samples
        assert [sample.value for sample in samples if sample.name.endswith("_count")] == [3]
        buckets = [float(s.labels["le"]) for s in samples if s.name.endswith("_bucket")]
        assert tuple(buckets[:-1]) == DIALECTS[dialect].edges_s


async def test_refused_calls_are_counted_by_tgi() -> None:
    async with serve(settings("tgi")) as engine:
        await engine.http.post(CHAT, json={"messages": SKY, "top_p": 1})
        samples = (await families(engine))["tgi_request_failure"].samples
        assert {sample.labels["err"]: sample.value for sample in samples} == {"validation": 1, "overloaded": 0}


@pytest.mark.parametrize("dialect", ["ollama", "openai"])
async def test_some_have_no_metrics(dialect: str) -> None:
    async with serve(settings(dialect)) as engine:
        assert (await engine.http.get("/metrics")).status_code == 404
