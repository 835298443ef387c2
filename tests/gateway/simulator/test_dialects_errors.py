"""How each dialect says no."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from gateway.simulator.dialects import DIALECTS
from gateway.simulator.dialects.protocol import Page
from gateway.simulator.server import Settings
from tests.gateway.simulator.dialect_calls import ENDLESS, LONG, SKY, TOOLS, settings
from tests.gateway.simulator.served import serve

CHAT = "/v1/chat/completions"


async def refused(dialect: str, path: str, body: dict[str, Any]) -> httpx2.Response:
    async with serve(settings(dialect)) as engine:
        return await engine.http.post(path, json=body)


@pytest.mark.parametrize(
    ("dialect", "status", "error"),
    [
        ("vllm", 404, {"type": "NotFoundError", "param": "model", "code": 404}),
        ("openai", 404, {"type": "invalid_request_error", "param": None, "code": "model_not_found"}),
        ("ollama", 404, {"type": "not_found_error", "param": None, "code": None, "message": "model 'x' not found"}),
    ],
)
async def test_an_unknown_model(dialect: str, status: int, error: dict[str, Any]) -> None:
    response = await refused(dialect, CHAT, {"model": "x", "messages": SKY})
    assert response.status_code == status
    assert error.items() <= response.json()["error"].items()


@pytest.mark.parametrize(("dialect", "shown"), [("tgi", "x"), ("lightllm", "x"), ("sglang", "x"), ("llamacpp", "m")])
async def test_some_take_any_model(dialect: str, shown: str) -> None:
    response = await refused(dialect, CHAT, {"model": "x", "messages": SKY, "max_tokens": 1})
    assert (response.status_code, response.json()["model"]) == (200, shown)


async def test_tgi_takes_its_own_name_for_its_model() -> None:
    assert (await refused("tgi", CHAT, {"model": "tgi", "messages": SKY})).json()["model"] == "m"


async def test_ollama_says_no_in_two_shapes() -> None:
    response = await refused("ollama", "/api/chat", {"model": "x", "messages": SKY})
    assert (response.status_code, response.json()) == (404, {"error": "model 'x' not found"})
    response = await refused("ollama", "/api/chat", {"messages": SKY})
    assert (response.status_code, response.json()) == (400, {"error": "model is required"})


@pytest.mark.parametrize(
    ("dialect", "status", "key"),
    [
        ("vllm", 400, "error"),
        ("openai", 400, "error"),
        ("ollama", 400, "error"),
        ("lightllm", 422, "detail"),
        ("sglang", 400, "message"),
        ("llamacpp", 400, "error"),
        ("tgi", 422, None),
    ],
)
async def test_a_field_of_another_type(dialect: str, status: int, key: str | None) -> None:
    response = await refused(dialect, CHAT, {"model": "m", "messages": "hi"})
    assert response.status_code == status
    if key is None:
        assert response.headers["content-type"] == "text/plain; charset=utf-8"
    else:
        assert key in response.json()


@pytest.mark.parametrize(
    ("dialect", "status"),
    [
        ("vllm", 400),
        ("openai", 400),
        ("ollama", 400),
        ("lightllm", 422),
        ("sglang", 400),
        ("llamacpp", 400),
        ("tgi", 400),
    ],
)
async def test_a_body_that_is_no_json(dialect: str, status: int) -> None:
    async with serve(settings(dialect)) as engine:
        for content in (b'{"messages": [', b"", b"\xff", b"nul"):
            headers = {"content-type": "application/json"}
            response = await engine.http.post(CHAT, content=content, headers=headers)
            assert response.status_code in (status, 422 if dialect == "tgi" else status)


@pytest.mark.parametrize(("dialect", "status"), [("vllm", 400), ("tgi", 415), ("llamacpp", 200), ("ollama", 200)])
async def test_a_body_that_is_not_declared_as_json(dialect: str, status: int) -> None:
    async with serve(settings(dialect)) as engine:
        content = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}'
        assert (await engine.http.post(CHAT, content=content)).status_code == status


async def test_a_prompt_that_is_too_long_for_a_whole_answer() -> None:
    body = {"model": "m", "messages": LONG}
    answers = {
        name: await refused(name, CHAT, body) for name in ("openai", "tgi", "lightllm", "sglang", "llamacpp", "ollama")
    }
    assert {name: answer.status_code for name, answer in answers.items()} == {
        "openai": 400,
        "tgi": 422,
        "lightllm": 400,
        "sglang": 400,
        "llamacpp": 400,
        "ollama": 200,
    }
    assert answers["openai"].json()["error"]["code"] == "context_length_exceeded"
    assert answers["tgi"].json()["error_type"] == "validation"
    assert answers["tgi"].json()["error"].startswith("Input validation error: ")
    assert answers["lightllm"].json()["error"]["type"] == "BadRequestError"
    flat = answers["sglang"].json()
    assert (flat["object"], flat["type"], flat["code"]) == ("error", "BadRequestError", 400)
    assert answers["llamacpp"].json()["error"] == {
        "code": 400,
        "message": "request (2005 tokens) exceeds the available context size (1024 tokens), try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 2005,
        "n_ctx": 1024,
    }
    assert answers["llamacpp"].headers["connection"] == "close"


@pytest.mark.parametrize(
    ("dialect", "path", "body", "start", "end"),
    [
        (
            "tgi",
            CHAT,
            {"messages": LONG},
            'data: {"error":{"message":"Input validation error: ',
            '"http_status_code":422}}\n\ndata: [DONE]\n\n',
        ),
        (
            "tgi",
            "/generate_stream",
            {"inputs": "word " * 2000},
            'data: {"error":"Input validation error: ',
            '"error_type":"validation"}\n\n',
        ),
        (
            "lightllm",
            CHAT,
            {"messages": LONG},
            'data: {"error": {"message": "This model',
            '"type": "invalid_request_error"}}\n\n',
        ),
        (
            "lightllm",
            "/generate_stream",
            {"inputs": "word " * 2000, "parameters": {}},
            'data: {"error": {"message": "This model',
            '"type": "invalid_request_error"}}\n\n',
        ),
    ],
)
async def test_some_refuse_a_stream_inside_a_200(
    dialect: str, path: str, body: dict[str, Any], start: str, end: str
) -> None:
    response = await refused(dialect, path, body | {"stream": True})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.startswith(start)
    assert response.text.endswith(end)
    assert response.text.count("data: ") == (2 if "DONE" in end else 1)


@pytest.mark.parametrize("dialect", ["vllm", "openai", "sglang", "llamacpp"])
async def test_others_refuse_a_stream_with_its_status(dialect: str) -> None:
    assert (await refused(dialect, CHAT, {"model": "m", "messages": LONG, "stream": True})).status_code == 400


async def full(dialect: str, path: str, body: dict[str, Any]) -> httpx2.Response:
    """Returns the answer of an engine whose slot and queue are taken."""
    async with serve(Settings(dialect=dialect, models=("m",), pace=ENDLESS, max_queue=0)) as engine:
        held = asyncio.create_task(engine.http.post(CHAT, json={"model": "m", "messages": SKY}))
        await engine.until_open(1)
        response = await engine.http.post(path, json=body)
        held.cancel()
        return response


@pytest.mark.parametrize(
    ("dialect", "status", "error"),
    [
        ("vllm", 503, {"error": {"type": "Service Unavailable", "param": None, "code": 503}}),
        ("tgi", 429, {"error": "Model is overloaded", "error_type": "overloaded"}),
        ("lightllm", 429, {"error": {"type": "RateLimitError", "param": None, "code": 429}}),
        ("sglang", 503, {"object": "error", "type": "SERVICE_UNAVAILABLE", "param": None, "code": 503}),
        ("openai", 429, {"error": {"type": "requests", "param": None, "code": "rate_limit_exceeded"}}),
        ("ollama", 503, {"error": {"type": "api_error", "param": None, "code": None}}),
    ],
)
async def test_a_full_queue(dialect: str, status: int, error: dict[str, Any]) -> None:
    response = await full(dialect, CHAT, {"model": "m", "messages": SKY})
    said: dict[str, Any] = response.json()
    assert response.status_code == status
    assert response.headers.get("retry-after") == ("1" if dialect == "openai" else None)
    for key, value in error.items():
        assert value.items() <= said[key].items() if isinstance(value, dict) else said[key] == value


@pytest.mark.parametrize(
    ("dialect", "path", "body", "said"),
    [
        (
            "tgi",
            CHAT,
            {"messages": SKY},
            'data: {"error":{"message":"Model is overloaded","http_status_code":422}}\n\ndata: [DONE]\n\n',
        ),
        (
            "tgi",
            "/generate_stream",
            {"inputs": "x"},
            'data: {"error":"Model is overloaded","error_type":"overloaded"}\n\n',
        ),
        (
            "sglang",
            CHAT,
            {"messages": SKY},
            'data: {"error":{"object":"error","message":"The request queue is full.","type":"SERVICE_UNAVAILABLE",'
            '"param":null,"code":503}}\n\ndata: [DONE]\n\n',
        ),
        (
            "sglang",
            "/generate",
            {"text": "x"},
            'data: {"error":{"message":"The request queue is full.","type":"invalid_request_error","code":503,'
            '"retryable":false}}\n\ndata: [DONE]\n\n',
        ),
    ],
)
async def test_a_full_queue_for_a_stream(dialect: str, path: str, body: dict[str, Any], said: str) -> None:
    response = await full(dialect, path, body | {"stream": True})
    assert (response.status_code, response.text) == (200, said)


async def test_ollamas_own_calls_find_the_queue_full() -> None:
    response = await full("ollama", "/api/chat", {"model": "m", "messages": SKY})
    expected = {"error": "server busy, please try again.  maximum pending requests exceeded"}
    assert (response.status_code, response.json()) == (503, expected)


@pytest.mark.parametrize(
    "body",
    [
        {"stop": "a"},
        {"logit_bias": {"5": 1}},
        {"stream": None},
        {"stream_options": None},
        {"seed": -1},
        {"max_tokens": 1, "max_completion_tokens": 1},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
    ],
)
async def test_tgi_refuses_what_it_cannot_read_in_plain_text(body: dict[str, Any]) -> None:
    response = await refused("tgi", CHAT, {"messages": SKY} | body)
    assert (response.status_code, response.headers["content-type"]) == (422, "text/plain; charset=utf-8")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": SKY, "top_p": 1}),
        (CHAT, {"messages": SKY, "max_tokens": 1020}),
        (CHAT, {"messages": SKY, "tools": TOOLS, "response_format": {"type": "json", "value": {}}}),
        ("/generate", {"inputs": "x", "parameters": {"temperature": 0}}),
        ("/generate", {"inputs": "x", "parameters": {"top_p": 1.0}}),
        ("/v1/completions", {"prompt": ["a"] * 5}),
    ],
)
async def test_tgi_refuses_values_with_a_kind(path: str, body: dict[str, Any]) -> None:
    response = await refused("tgi", path, body)
    assert (response.status_code, response.json()["error_type"]) == (422, "validation")


async def test_tgi_ignores_n_and_takes_a_bare_name_as_tool_choice() -> None:
    response = await refused("tgi", CHAT, {"messages": SKY, "n": 3, "tools": TOOLS, "tool_choice": "get_weather"})
    [choice] = response.json()["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "get_weather"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"temperature": None}, 500),
        ({"n": None}, 500),
        ({"logit_bias": {"5": 1}}, 400),
        ({"presence_penalty": -1}, 400),
        ({"reasoning_effort": "none"}, 422),
        ({"stop": list("abcdefghijk")}, 422),
        ({"max_tokens": 50_000}, 200),
        ({"stop": None, "seed": None}, 200),
    ],
)
async def test_what_lightllm_refuses(body: dict[str, Any], status: int) -> None:
    assert (await refused("lightllm", CHAT, {"messages": SKY} | body)).status_code == status


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"n": None}, 400),
        ({"presence_penalty": None}, 400),
        ({"max_tokens": 1020}, 400),
        ({"stop": list("abcdefghijk")}, 200),
        ({"temperature": None, "seed": None}, 200),
    ],
)
async def test_what_sglang_refuses(body: dict[str, Any], status: int) -> None:
    assert (await refused("sglang", CHAT, {"messages": SKY} | body)).status_code == status


@pytest.mark.parametrize(
    ("body", "status"),
    [({"temperature": 5, "top_p": 2}, 200), ({"n": 9}, 400), ({"n": 8}, 200), ({"stop": list("abcdefghijk")}, 200)],
)
async def test_llamacpp_is_lax(body: dict[str, Any], status: int) -> None:
    assert (await refused("llamacpp", CHAT, {"messages": SKY} | body)).status_code == status


@pytest.mark.parametrize("body", [{"text": None}, {"sampling_params": {"max_new_tokens": "x"}, "text": "x"}])
async def test_sglangs_own_call_without_a_prompt_or_with_nonsense(body: dict[str, Any]) -> None:
    assert (await refused("sglang", "/generate", body)).status_code == 400


async def test_lightllms_own_call_without_its_fields() -> None:
    response = await refused("lightllm", "/generate", {"inputs": "x"})
    assert (response.status_code, response.json()["error"]["code"]) == (417, 417)


@pytest.mark.parametrize(
    ("dialect", "missing", "wrong"),
    [
        ("vllm", (404, '{"detail":"Not Found"}'), (405, '{"detail":"Method Not Allowed"}')),
        ("sglang", (404, '{"detail":"Not Found"}'), (405, '{"detail":"Method Not Allowed"}')),
        ("lightllm", (404, '{"detail":"Not Found"}'), (405, '{"detail":"Method Not Allowed"}')),
        ("tgi", (404, ""), (405, "")),
        ("ollama", (404, "404 page not found"), (405, "405 method not allowed")),
        (
            "llamacpp",
            (404, '{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}'),
            (404, '{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}'),
        ),
        (
            "openai",
            (
                404,
                '{"error":{"message":"Invalid URL (GET /nope)","type":"invalid_request_error","param":null,'
                '"code":null}}',
            ),
            (
                405,
                '{"error":{"message":"Not allowed to GET on /v1/chat/completions.","type":"invalid_request_error",'
                '"param":null,"code":"method_not_supported"}}',
            ),
        ),
    ],
)
async def test_unknown_paths_and_methods(dialect: str, missing: tuple[int, str], wrong: tuple[int, str]) -> None:
    async with serve(settings(dialect)) as engine:
        for path, expected in (("/nope", missing), (CHAT, wrong)):
            response = await engine.http.get(path)
            assert (response.status_code, response.text) == expected


NONSENSE: list[bytes] = [
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"{}",
    b"\xff\xfe",
    b'{"model": 5}',
    b'{"inputs": "x", "parameters": {"grammar": {"type": "json", "value": 5}}}',
    b'{"model": "m", "messages": null, "prompt": null, "input": null, "inputs": null, "text": null, "content": null}',
    b'{"model": "m", "messages": [null], "prompt": [[null]], "input": {}, "inputs": 5, "parameters": []}',
    b'{"model": "m", "messages": [{"role": 1}], "prompt": {}, "inputs": [], "parameters": null, "options": 3}',
    b'{"model": "m", "messages": [{"role": "user", "content": [{"type": "text"}]}], "prompt": "", "inputs": "", '
    b'"parameters": {}, "text": "", "input": "", "content": ""}',
    b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{"function": {"name": "f", '
    b'"parameters": {"type": "array", "items": {"$ref": "#"}}}}], "tool_choice": "required", "prompt": "x"}',
    b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json", "value": '
    b'{"type": 5}}, "format": {"type": 5}, "prompt": "x"}',
    b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "seed": 99999999999999999999, "stop": [1]}',
    b'{"model": "m", "messages": [{"role": "user", "content": "x", "tool_calls": ' + b"[" * 300 + b"]" * 300 + b"}]}",
    b'{"model": "m", "prompt": "x", "messages": [{"role": "user", "content": "x"}], "tool_choice": '
    + b'{"a":' * 300
    + b"1"
    + b"}" * 300
    + b"}",
]
ROUTES = [
    (dialect, path)
    for dialect, engine in DIALECTS.items()
    for path, route in engine.routes().items()
    if not isinstance(route, Page) or "POST" in route.methods
]


@pytest.mark.parametrize(("dialect", "path"), ROUTES)
async def test_nonsense_is_refused_and_never_breaks_the_engine(dialect: str, path: str) -> None:
    async with serve(settings(dialect)) as engine:
        for body in NONSENSE:
            headers = {"content-type": "application/json"}
            response = await engine.http.post(path.removeprefix("POST "), content=body, headers=headers)
            assert response.status_code < 500, (body, response.text)
