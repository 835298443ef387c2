"""The engine's dialect, over a real socket."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections import Counter
from typing import Any

import openai
import pytest

from gateway.simulator.batching import Pace
from gateway.simulator.server import Settings
from tests.gateway.simulator.served import Served, serve

FAST = Settings(models=("m", "alias"), pace=Pace(ttft_s=0, itl_s=0, prefill_tokens_per_s=1e9), context_tokens=1024)
ENDLESS = Settings(models=("m",), pace=Pace(ttft_s=0, itl_s=3600, slots=1, prefill_tokens_per_s=1e9))
"""The first token comes at once and the second never."""

SKY = [{"role": "user", "content": "Why is the sky blue?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]


async def post(engine: Served, path: str, **body: Any) -> dict[str, Any]:
    response = await engine.http.post(path, json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def chat(engine: Served, **body: Any) -> dict[str, Any]:
    return await post(engine, "/v1/chat/completions", **body)


async def stream(engine: Served, path: str, **body: Any) -> list[dict[str, Any]]:
    response = await engine.http.post(path, json=body | {"stream": True})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *frames, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert all(frame.startswith("data: {") for frame in frames)
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


async def chat_stream(engine: Served, **body: Any) -> list[dict[str, Any]]:
    return await stream(engine, "/v1/chat/completions", **body)


def choices(chunks: list[dict[str, Any]], index: int = 0) -> list[dict[str, Any]]:
    return [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]


def deltas(chunks: list[dict[str, Any]], key: str, index: int = 0) -> str:
    return "".join(choice["delta"].get(key) or "" for choice in choices(chunks, index))


async def test_a_chat_stream_is_byte_for_byte_what_the_engine_writes() -> None:
    async with serve(FAST) as engine:
        response = await engine.http.post(
            "/v1/chat/completions",
            json={"messages": SKY, "max_tokens": 2, "stream": True, "stream_options": {"include_usage": True}},
            headers={"x-request-id": "abc-123"},
        )
        frames = response.text.split("\n\n")
        created = json.loads(frames[0].removeprefix("data: "))["created"]
        head = f'data: {{"id":"chatcmpl-abc-123","object":"chat.completion.chunk","created":{created},"model":"m",'
        first, second = (json.loads(frame.removeprefix("data: "))["choices"][0]["delta"] for frame in frames[1:3])
        fingerprint = json.loads(frames[3].removeprefix("data: "))["system_fingerprint"]
        assert frames == [
            head + '"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,'
            '"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}',
            head + f'"choices":[{{"index":0,"delta":{{"content":"{first["content"]}"}},"logprobs":null,'
            '"finish_reason":null,"token_ids":null}]}',
            head + f'"choices":[{{"index":0,"delta":{{"content":"{second["content"]}"}},"logprobs":null,'
            '"finish_reason":"length","stop_reason":null,"token_ids":null}]}',
            head + '"choices":[],"usage":{"prompt_tokens":10,"total_tokens":12,"completion_tokens":2},'
            f'"system_fingerprint":"{fingerprint}"}}',
            "data: [DONE]",
            "",
        ]
        assert fingerprint.startswith("vllm-0.33.0")


async def test_without_usage_the_last_chunk_carries_the_fingerprint() -> None:
    async with serve(FAST) as engine:
        for path, body in (("/v1/chat/completions", {"messages": SKY}), ("/v1/completions", {"prompt": "The sky"})):
            chunks = await stream(engine, path, **body)
            assert [bool(chunk.get("system_fingerprint")) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_a_stream_and_a_whole_answer_say_the_same() -> None:
    async with serve(FAST) as engine:
        whole = await chat(engine, messages=SKY, seed=7)
        chunks = await chat_stream(engine, messages=SKY, seed=7, stream_options={"include_usage": True})
        choice = whole["choices"][0]
        assert choice["message"]["content"] == deltas(chunks, "content")
        assert choice["finish_reason"] == choices(chunks)[-1]["finish_reason"] == "stop"
        assert whole["usage"] == chunks[-1]["usage"]
        assert choice["message"]["content"].endswith(".")


async def test_running_usage_counts_every_token() -> None:
    async with serve(FAST) as engine:
        options = {"include_usage": True, "continuous_usage_stats": True}
        chunks = await chat_stream(engine, messages=SKY, max_tokens=3, stream_options=options)
        assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [0, 1, 2, 3, 3]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_stop_string_ends_the_answer_and_is_not_shown(path: str) -> None:
    async with serve(FAST) as engine:
        body = {"messages": SKY, "prompt": "Why is the sky blue?", "stop": "."}
        whole = (await post(engine, path, **body, max_tokens=200))["choices"][0]
        last = choices(await stream(engine, path, **body, max_tokens=200))[-1]
        assert "." not in (whole["message"]["content"] if "message" in whole else whole["text"])
        for choice in (whole, last):
            assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", ".")
        assert last.get("delta", {}) == {}


async def test_several_choices_share_one_stream_and_one_usage() -> None:
    async with serve(FAST) as engine:
        chunks = await chat_stream(engine, messages=SKY, n=3, stream_options={"include_usage": True})
        whole = await chat(engine, messages=SKY, n=3)
        for index in range(3):
            assert deltas(chunks, "role", index) == "assistant"
            assert deltas(chunks, "content", index) == whole["choices"][index]["message"]["content"]
        assert len({choice["message"]["content"] for choice in whole["choices"]}) == 3
        assert sum("usage" in chunk for chunk in chunks) == 1
        assert chunks[-1]["usage"] == whole["usage"]


@pytest.mark.parametrize(
    ("prompt", "tokens", "texts"),
    [("The sky", 2, 1), (["The sky", "A sea"], 4, 2), ([5, 6, 7], 3, 1), ([[5, 6], [7, 8, 9]], 5, 2)],
)
async def test_a_completion_takes_every_form_of_prompt(prompt: object, tokens: int, texts: int) -> None:
    async with serve(FAST) as engine:
        whole = await post(engine, "/v1/completions", prompt=prompt, n=2)
        assert [choice["index"] for choice in whole["choices"]] == list(range(2 * texts))
        assert whole["usage"] == {
            "prompt_tokens": tokens,
            "total_tokens": tokens + 32 * texts,
            "completion_tokens": 32 * texts,
        }
        assert all(choice["finish_reason"] == "length" for choice in whole["choices"])
        chunks = await stream(engine, "/v1/completions", prompt=prompt, n=2)
        streamed = Counter[int]()
        for chunk in chunks:
            streamed[chunk["choices"][0]["index"]] += 1
        assert streamed == {index: 16 for index in range(2 * texts)}


async def test_a_completion_goes_on_after_a_space() -> None:
    async with serve(FAST) as engine:
        assert (await post(engine, "/v1/completions", prompt="The sky"))["choices"][0]["text"].startswith(" ")
        assert not (await post(engine, "/v1/completions", prompt="The sky "))["choices"][0]["text"].startswith(" ")


async def test_log_probabilities_come_with_every_token() -> None:
    async with serve(FAST) as engine:
        wanted = {"messages": SKY, "max_tokens": 4, "logprobs": True, "top_logprobs": 3}
        whole = (await chat(engine, **wanted))["choices"][0]
        streamed = choices(await chat_stream(engine, **wanted))[1:]
        entries = whole["logprobs"]["content"]
        assert entries == [entry for choice in streamed for entry in choice["logprobs"]["content"]]
        assert "".join(entry["token"] for entry in entries) == whole["message"]["content"]
        for entry in entries:
            assert bytes(entry["bytes"]).decode() == entry["token"]
            assert len(entry["top_logprobs"]) == 3
            assert entry["top_logprobs"][0]["logprob"] == entry["logprob"] < 0
        assert (await chat(engine, messages=SKY, max_tokens=1))["choices"][0]["logprobs"] is None


async def test_a_completions_log_probabilities_say_where_each_token_stands() -> None:
    async with serve(FAST) as engine:
        wanted = {"prompt": "The sky", "max_tokens": 4, "logprobs": 2}
        whole = (await post(engine, "/v1/completions", **wanted))["choices"][0]
        streamed = choices(await stream(engine, "/v1/completions", **wanted))
        logprobs = whole["logprobs"]
        for key in ("text_offset", "tokens", "token_logprobs", "top_logprobs"):
            assert logprobs[key] == [value for choice in streamed for value in choice["logprobs"][key]]
        for offset, token in zip(logprobs["text_offset"], logprobs["tokens"], strict=True):
            assert whole["text"][offset:].startswith(token)


async def test_a_tool_call_is_streamed_as_a_head_and_its_arguments() -> None:
    async with serve(FAST) as engine:
        chunks = choices(await chat_stream(engine, messages=WEATHER, tools=TOOLS))
        head, *rest = [choice["delta"] for choice in chunks[1:]]
        call = head["tool_calls"][0]
        assert call["id"].startswith("chatcmpl-tool-")
        assert (call["type"], call["index"], call["function"]) == ("function", 0, {"name": "get_weather"})
        assert all(delta["content"] is None and "id" not in delta["tool_calls"][0] for delta in rest)
        arguments = "".join(delta["tool_calls"][0]["function"]["arguments"] for delta in rest)
        assert json.loads(arguments) == {"city": "Paris"}
        assert chunks[-1]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("choice", "finish"),
    [
        ("auto", "tool_calls"),
        ("required", "tool_calls"),
        ({"type": "function", "function": {"name": "get_weather"}}, "stop"),
    ],
)
async def test_a_tool_is_called_by_choice(choice: object, finish: str) -> None:
    async with serve(FAST) as engine:
        whole = (await chat(engine, messages=WEATHER, tools=TOOLS, tool_choice=choice))["choices"][0]
        call = whole["message"]["tool_calls"][0]
        assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}
        assert (whole["message"]["content"], whole["finish_reason"]) == ("", finish)


ANSWERED: list[dict[str, Any]] = [
    *WEATHER,
    {"role": "assistant", "tool_calls": [{"id": "1"}]},
    {"role": "tool", "content": "4 degrees"},
]


@pytest.mark.parametrize(
    ("choice", "messages"),
    [
        ("none", WEATHER),
        ("auto", SKY),
        ("auto", ANSWERED),
    ],
)
async def test_no_tool_is_called_when_none_may_be_or_none_fits_or_one_has_answered(
    choice: str, messages: list[Any]
) -> None:
    async with serve(FAST) as engine:
        message = (await chat(engine, messages=messages, tools=TOOLS, tool_choice=choice))["choices"][0]["message"]
        assert "tool_calls" not in message
        assert message["content"].endswith(".")


async def test_a_tool_call_that_is_cut_off_comes_out_as_content() -> None:
    async with serve(FAST) as engine:
        whole = (await chat(engine, messages=WEATHER, tools=TOOLS, max_tokens=4))["choices"][0]
        assert whole["finish_reason"] == "length"
        assert whole["message"]["content"].startswith("get_weather")


async def test_json_is_what_the_format_asks_for() -> None:
    async with serve(FAST) as engine:
        schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 30}}, "required": ["n"]}
        wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        answers = [
            (await chat(engine, messages=SKY, response_format=response_format))["choices"][0]["message"]["content"]
            for response_format in (wanted, {"type": "json_object"}, {"type": "text"})
        ]
        assert json.loads(answers[0]) == {"n": 30}
        assert set(json.loads(answers[1])) == {"topic", "answer"}
        assert answers[2].endswith(".")


async def test_reasoning_comes_before_the_answer_when_effort_is_set() -> None:
    async with serve(FAST) as engine:
        chunks = await chat_stream(engine, messages=SKY, reasoning_effort="low", stream_options={"include_usage": True})
        fields = [next(iter(choice["delta"])) for choice in choices(chunks)[1:]]
        assert fields == sorted(fields, reverse=True)
        assert deltas(chunks, "reasoning") == "The user asks about blue."
        assert chunks[-1]["usage"]["completion_tokens_details"] == {"reasoning_tokens": fields.count("reasoning")}
        assert (await chat(engine, messages=SKY, reasoning_effort="none"))["choices"][0]["message"]["reasoning"] is None


async def test_images_and_sounds_are_counted_as_parts_of_the_prompt() -> None:
    async with serve(FAST) as engine:
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
        text = {"type": "text", "text": SKY[0]["content"]}
        plain, mixed = [
            (await chat(engine, messages=[{"role": "user", "content": parts}], max_tokens=1))["usage"]["prompt_tokens"]
            for parts in ([text], [image, text, image])
        ]
        assert mixed - plain == 512


async def test_generation_past_the_end_of_the_answer_fills_the_limit() -> None:
    async with serve(FAST) as engine:
        whole = await chat(engine, messages=SKY, max_tokens=700, ignore_eos=True)
        assert (whole["usage"]["completion_tokens"], whole["choices"][0]["finish_reason"]) == (700, "length")


async def test_output_is_clamped_to_the_context() -> None:
    async with serve(FAST) as engine:
        whole = await chat(engine, messages=SKY, max_tokens=1024, ignore_eos=True)
        assert (whole["usage"]["total_tokens"], whole["choices"][0]["finish_reason"]) == (1024, "length")


LONG = [{"role": "user", "content": "word " * 2000}]
REFUSALS: list[tuple[dict[str, Any], int, str, str | None, str]] = [
    (
        {"model": "nope", "messages": SKY},
        404,
        "NotFoundError",
        "model",
        "The model `nope` does not exist. Valid aliases: m, alias.",
    ),
    ({"messages": []}, 400, "BadRequestError", None, "Cannot apply chat template to an empty conversation."),
    ({}, 400, "Bad Request", "body.messages", "'loc': 'body.messages', 'msg': 'Field required'"),
    ({"messages": "hi"}, 400, "Bad Request", "body.messages", "1 validation error"),
    ({"messages": SKY, "temperature": 5}, 400, "BadRequestError", "temperature", "temperature must be in [0, 2], got"),
    ({"messages": SKY, "temperature": "hot"}, 400, "Bad Request", "body.temperature", "'float_parsing'"),
    (
        {"messages": SKY, "top_p": 2},
        400,
        "BadRequestError",
        "top_p",
        "top_p must be in (0, 1], got 2.0. (parameter=top_p",
    ),
    ({"messages": SKY, "n": 0}, 400, "BadRequestError", "n", "got 0"),
    ({"messages": SKY, "n": 2, "temperature": 0}, 400, "BadRequestError", "n", "greedy"),
    ({"messages": SKY, "max_tokens": 0}, 400, "BadRequestError", "max_tokens", "max_tokens must be at least 1, got 0."),
    ({"messages": SKY, "max_completion_tokens": -1, "max_tokens": 5}, 400, "BadRequestError", "max_tokens", "got -1"),
    ({"messages": SKY, "max_tokens": 5000}, 400, "BadRequestError", "max_tokens", "greater than max_model_len=1024"),
    ({"messages": SKY, "stop": list("abcde")}, 400, "Bad Request", "body.stop", "at most 4 items"),
    ({"messages": SKY, "stream_options": {}}, 400, "BadRequestError", "stream_options", "when `stream=True`"),
    ({"messages": SKY, "tools": []}, 400, "BadRequestError", "tools", "leave it out"),
    ({"messages": SKY, "tool_choice": "required"}, 400, "BadRequestError", "tool_choice", "`tools` must be set"),
    ({"messages": SKY, "tools": TOOLS, "tool_choice": "maybe"}, 400, "BadRequestError", "tool_choice", "name one of"),
    (
        {"messages": SKY, "tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "sing"}}},
        400,
        "BadRequestError",
        "tool_choice",
        "name one of the `tools`",
    ),
    ({"messages": SKY, "logprobs": True, "top_logprobs": 99}, 400, "BadRequestError", "logprobs", "max allowed: 20"),
    ({"messages": SKY, "top_logprobs": 2}, 400, "BadRequestError", "top_logprobs", "`logprobs` must be set"),
    ({"messages": LONG}, 400, "BadRequestError", "input_tokens", "maximum context length is 1024 tokens"),
    ({"messages": LONG, "stream": True}, 400, "BadRequestError", "input_tokens", "at least 1025 input tokens"),
    ({"messages": SKY, "response_format": {"type": "xml"}}, 400, "BadRequestError", "response_format", "json_schema"),
    (
        {"messages": SKY, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}},
        400,
        "BadRequestError",
        None,
        "Grammar error: Invalid type: nonsense",
    ),
]


@pytest.mark.parametrize(("body", "status", "type", "param", "message"), REFUSALS)
async def test_a_wrong_call_is_refused_in_the_engines_words(
    body: dict[str, Any], status: int, type: str, param: str | None, message: str
) -> None:
    async with serve(FAST) as engine:
        response = await engine.http.post("/v1/chat/completions", json=body)
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["type"], error["param"]) == (status, status, type, param)
        assert message in error["message"]


@pytest.mark.parametrize(
    ("content", "content_type", "param"),
    [
        (b'{"model": "x", "messages": [', "application/json", "body.28"),
        (b"", "application/json", "body"),
        (b"[]", "application/json", "body"),
        (b"{}", "text/plain", None),
    ],
)
async def test_a_body_that_is_no_json_object_is_refused(content: bytes, content_type: str, param: str | None) -> None:
    async with serve(FAST) as engine:
        response = await engine.http.post(
            "/v1/chat/completions", content=content, headers={"content-type": content_type}
        )
        error = response.json()["error"]
        assert (response.status_code, error["type"], error["param"]) == (400, "Bad Request", param)


@pytest.mark.parametrize("prompt", [None, [], ["a", 1], [[1], "a"], {"a": 1}])
async def test_a_prompt_of_another_shape_is_refused(prompt: object) -> None:
    async with serve(FAST) as engine:
        response = await engine.http.post("/v1/completions", json={"prompt": prompt})
        assert response.status_code == 400
        assert "prompt" in response.json()["error"]["param"]


async def test_nulls_and_unknown_fields_are_accepted() -> None:
    async with serve(FAST) as engine:
        nulls = dict.fromkeys(("n", "stop", "top_p", "tools", "stream_options", "max_tokens", "seed", "logprobs"))
        await chat(engine, messages=SKY, flux_capacitor=True, **nulls)


async def test_other_routes_and_methods_answer_as_the_engines_framework_does() -> None:
    async with serve(FAST) as engine:
        missing, wrong = await engine.http.post("/v1/nope", json={}), await engine.http.get("/v1/chat/completions")
        assert (missing.status_code, missing.json()) == (404, {"detail": "Not Found"})
        assert (wrong.status_code, wrong.json()) == (405, {"detail": "Method Not Allowed"})


async def test_health_version_and_models_say_what_the_engine_is() -> None:
    async with serve(FAST) as engine:
        health = await engine.http.get("/health")
        assert (health.status_code, health.content) == (200, b"")
        assert (await engine.http.get("/version")).json()["version"].startswith("0.33.0")
        models = (await engine.http.get("/v1/models")).json()["data"]
        assert [(m["id"], m["owned_by"], m["max_model_len"]) for m in models] == [
            ("m", "vllm", 1024),
            ("alias", "vllm", 1024),
        ]
        assert (await chat(engine, model="alias", messages=SKY))["model"] == "alias"


async def test_tokenize_counts_as_generation_does() -> None:
    async with serve(FAST) as engine:
        text = await post(engine, "/tokenize", prompt="Hello world", return_token_strs=True)
        assert (text["count"], text["token_strs"], text["max_model_len"]) == (2, ["Hello", " world"], 1024)
        for more in ({}, {"tools": TOOLS}):
            counted = await post(engine, "/tokenize", messages=WEATHER, **more)
            answered = await chat(engine, messages=WEATHER, max_tokens=1, **more)
            assert counted["count"] == answered["usage"]["prompt_tokens"]


@pytest.mark.parametrize("given", ["a text", ["a text", "another"], [1, 2], [[1, 2], [3]]])
async def test_embeddings_take_every_form_of_input_in_both_encodings(given: list[Any] | str) -> None:
    async with serve(FAST) as engine:
        floats = await post(engine, "/v1/embeddings", input=given, dimensions=64)
        packed = await post(engine, "/v1/embeddings", input=given, dimensions=64, encoding_format="base64")
        several = isinstance(given, list) and not isinstance(given[0], int)
        assert [item["index"] for item in floats["data"]] == list(range(len(given) if several else 1))
        assert floats["usage"]["completion_tokens"] == 0
        for one, other in zip(floats["data"], packed["data"], strict=True):
            assert struct.unpack("<64f", base64.b64decode(other["embedding"])) == pytest.approx(one["embedding"])


async def test_an_embedding_longer_than_the_context_or_of_no_size_is_refused() -> None:
    async with serve(FAST) as engine:
        for body in (
            {"input": "word " * 2000},
            {"input": "x", "dimensions": 0},
            {"input": "x", "encoding_format": "x"},
        ):
            assert (await engine.http.post("/v1/embeddings", json=body)).status_code == 400


async def test_metrics_count_tokens_and_finished_requests() -> None:
    async with serve(FAST) as engine:
        usages = [(await chat(engine, messages=SKY, max_tokens=limit))["usage"] for limit in (3, 500)]
        assert await engine.metric("prompt_tokens_total") == sum(usage["prompt_tokens"] for usage in usages)
        assert await engine.metric("generation_tokens_total") == sum(usage["completion_tokens"] for usage in usages)
        for reason in ("stop", "length"):
            assert await engine.metric("request_success_total", finished_reason=reason) == 1
        assert await engine.metric("time_to_first_token_seconds_count", model_name="m", engine="0") == 2
        assert await engine.metric("time_to_first_token_seconds_bucket", le="+Inf") == 2
        assert await engine.metric("num_requests_running") == await engine.metric("kv_cache_usage_perc") == 0


async def test_headers_come_at_once_and_the_stream_waits_for_its_slot() -> None:
    async with serve(ENDLESS) as engine:
        body = {"messages": SKY, "stream": True}
        async with engine.http.stream("POST", "/v1/chat/completions", json=body) as first:
            await engine.until("generation_tokens_total", 1)
            async with engine.http.stream("POST", "/v1/chat/completions", json=body) as second:
                assert (first.status_code, second.status_code) == (200, 200)
                assert await engine.metric("num_requests_waiting") == 1
                assert await engine.metric("kv_cache_usage_perc") > 0


async def leave(engine: Served, body: dict[str, Any], *, after: bytes | None = None, gauge: str) -> None:
    """Sends a chat call on a socket of its own, waits for ``after`` or the gauge, and closes the socket."""
    before = await engine.metric(gauge)
    reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
    data = json.dumps(body).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(data), data)
    )
    if after is not None:
        await reader.readuntil(after)
    await engine.until(gauge, before + 1)
    writer.close()
    await engine.until(gauge, before)


async def test_a_client_that_leaves_in_mid_stream_ends_its_request() -> None:
    async with serve(ENDLESS) as engine:
        await leave(engine, {"messages": SKY, "stream": True}, after=b'"content":"', gauge="num_requests_running")
        assert await engine.metric("request_success_total", finished_reason="abort") == 0


async def test_a_client_that_leaves_a_whole_answer_ends_its_request() -> None:
    async with serve(ENDLESS) as engine:
        await leave(engine, {"messages": SKY}, gauge="num_requests_running")
        await leave(engine, {"messages": SKY, "n": 1}, gauge="num_requests_running")


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_client_that_leaves_the_queue_is_forgotten(streaming: bool) -> None:
    async with serve(ENDLESS) as engine:
        body = {"messages": SKY, "stream": True}
        async with engine.http.stream("POST", "/v1/chat/completions", json=body):
            await engine.until("num_requests_running", 1)
            await leave(engine, body | {"stream": streaming}, gauge="num_requests_waiting")
            assert await engine.metric("num_requests_running") == 1
        await engine.until("num_requests_running", 0)


async def test_a_client_that_leaves_frees_the_slot_for_the_next() -> None:
    steady = Settings(pace=Pace(ttft_s=0, itl_s=0.05, slots=1))
    async with serve(steady) as engine:
        endless = {"messages": SKY, "stream": True, "ignore_eos": True}
        async with engine.http.stream("POST", "/v1/chat/completions", json=endless):
            await engine.until("num_requests_running", 1)
            waiting = asyncio.create_task(chat(engine, messages=SKY, max_tokens=1))
            await engine.until("num_requests_waiting", 1)
        assert (await waiting)["usage"]["completion_tokens"] == 1


async def test_an_engine_that_is_told_to_stop_ends_its_streams_with_abort() -> None:
    async with serve(ENDLESS) as engine:
        running = asyncio.create_task(chat_stream(engine, messages=SKY))
        await engine.until("num_requests_running", 1)
        whole = asyncio.create_task(chat(engine, messages=SKY))
        await engine.until("num_requests_waiting", 1)
        engine.app.abort_all()
        assert choices(await running)[-1]["finish_reason"] == "abort"
        assert (await whole)["choices"][0]["finish_reason"] == "abort"


async def test_the_openai_client_works_against_it() -> None:
    async with serve(FAST) as engine, openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="none") as client:
        whole = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Why is the sky blue?"}]
        )
        text = ""
        async with client.chat.completions.stream(
            model="m", messages=[{"role": "user", "content": "Why is the sky blue?"}]
        ) as events:
            async for event in events:
                if event.type == "content.delta":
                    text += event.delta
        assert text == whole.choices[0].message.content
        assert [model.id async for model in client.models.list()] == ["m", "alias"]
        vectors = await client.embeddings.create(model="m", input=["sky", "sea"])
        assert len(vectors.data[1].embedding) == 384
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await client.completions.create(model="nope", prompt="x")
