"""Laws over the list of engines, and what each is sent."""

from __future__ import annotations

import json
from itertools import product
from typing import Any, NamedTuple, get_args

import pytest

from adapters import ADAPTERS
from adapters.bodies import read_object
from adapters.capabilities import capabilities
from adapters.types import GatewayRequest, Operation, UpstreamRequest
from gateway.config import EndpointConfig
from tests.fakes.engines import ENGINES

Json = dict[str, Any]
ALL = sorted(ADAPTERS)
PATHS: dict[Operation, str] = {
    "chat": "/v1/chat/completions",
    "text_completion": "/v1/completions",
    "embeddings": "/v1/embeddings",
    "other": "/v1/rerank",
}
GENERATES: tuple[Operation, ...] = ("chat", "text_completion")
CHAT: Json = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.5}


class Case(NamedTuple):
    """What a client asks for, in the fields that adapters look at."""

    operation: Operation
    stream: bool | None
    usage: bool | None
    logprobs: bool
    tools: bool
    nulls: bool


CASES = [
    Case(*values)
    for values in product(PATHS, (None, False, True), (None, False, True), (False, True), (False, True), (False, True))
]


def body_of(case: Case) -> Json:
    body: Json = {"model": "m", "messages": [], "prompt": "hi", "input": ["hi"], "custom": {"null": None}}
    if case.stream is not None:
        body["stream"] = case.stream
    if case.usage is not None:
        body["stream_options"] = {"include_usage": case.usage, "other": 1}
    if case.logprobs:
        body["logprobs"] = True
    if case.tools:
        body["tools"] = [{"type": "function", "function": {"name": "f"}}]
    if case.nulls:
        body |= {"user": None, "stop": None}
    return body


def request(body: Json, operation: Operation = "chat", raw: bytes | None = None) -> GatewayRequest:
    data = json.dumps(body).encode() if raw is None else raw
    return GatewayRequest(
        request_id="r",
        operation=operation,
        path=PATHS[operation],
        method="POST",
        model=str(body.get("model", "")),
        stream=body.get("stream") is True,
        raw=data,
        body=read_object(data) if data else {},
        created_unix_s=1,
    )


def encoded(
    name: str, body: Json, operation: Operation = "chat", model: str | None = "engine-m"
) -> tuple[UpstreamRequest, Json]:
    upstream = ADAPTERS[name].encode(request(body, operation), model)
    return upstream, json.loads(upstream.body)


def test_the_registry_is_keyed_by_the_adapters_own_names() -> None:
    assert {name: adapter.name for name, adapter in ADAPTERS.items()} == {name: name for name in ADAPTERS}


def test_the_configuration_takes_the_engines_there_are_and_auto() -> None:
    assert sorted(get_args(EndpointConfig.model_fields["engine"].annotation)) == sorted([*ALL, "auto"])


@pytest.mark.parametrize("name", ALL)
def test_an_engine_tells_how_it_is_probed_and_how_long_its_connections_last(name: str) -> None:
    assert ADAPTERS[name].health_path.startswith("/")
    assert 0 < ADAPTERS[name].idle_s < 5, "vLLM and llama.cpp close at 5.0 s"


@pytest.mark.parametrize("name", ENGINES)
def test_over_every_request_only_what_must_change_does(name: str) -> None:
    for case in CASES:
        body = body_of(case)
        upstream, sent = encoded(name, body, case.operation)
        generates = case.operation in GENERATES
        forced = name == "llamacpp" and generates and not case.stream and not (case.logprobs and case.tools)
        expected = {**body, "model": "engine-m"}
        if name == "sglang":
            expected = {key: value for key, value in expected.items() if value is not None}
        if forced:
            expected["stream"] = True
        if generates and expected.get("stream") and not case.usage:
            expected["stream_options"] = {**body.get("stream_options", {}), "include_usage": True}
        assert sent == expected, case
        assert upstream.stream == (case.stream is True or forced), case
        assert upstream.path == PATHS[case.operation]
        assert upstream.dropped == ()


@pytest.mark.parametrize("name", ENGINES)
def test_a_model_name_of_none_leaves_the_clients(name: str) -> None:
    assert encoded(name, CHAT, model=None)[1]["model"] == "m"


@pytest.mark.parametrize("name", ENGINES)
def test_stream_options_that_are_null_make_room_for_ours(name: str) -> None:
    _, sent = encoded(name, {**CHAT, "stream": True, "stream_options": None})
    assert sent["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("name", ENGINES)
def test_a_body_that_needs_no_change_goes_out_byte_for_byte(name: str) -> None:
    raw = b'{ "model":"m", "stream" : true, "messages": [], "stream_options": {"include_usage": true} }'
    upstream = ADAPTERS[name].encode(request(json.loads(raw), raw=raw), "m")
    assert upstream.body == raw


@pytest.mark.parametrize("name", ALL)
def test_what_is_no_json_is_passed_as_it_is(name: str) -> None:
    for raw in (b"", b"--b\r\nform\r\n--b--"):
        asked = GatewayRequest("r", "other", "/v1/files?limit=2", "GET", "m", False, raw, {}, 1)
        upstream = ADAPTERS[name].encode(asked, "engine-m")
        assert (upstream.body, upstream.path, upstream.stream) == (raw, "/v1/files?limit=2", False)


@pytest.mark.parametrize("name", ALL)
def test_encoding_leaves_the_request_alone(name: str) -> None:
    body = {**CHAT, "user": None, "stream_options": {"x": 1}, "stream": True}
    asked = request(body)
    ADAPTERS[name].encode(asked, "engine-m")
    assert dict(asked.body) == body
    assert json.loads(asked.raw) == body


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(("operation", "stream"), [("chat", True), ("chat", False), ("embeddings", False)])
def test_a_large_prompt_arrives_whole(name: str, operation: Operation, stream: bool) -> None:
    text = 'the "model" \\ ' + "é😀\n" * 60_000
    body: Json = {"model": "m", "stream": stream, "input": text, "messages": [{"role": "user", "content": text}]}
    _, sent = encoded(name, body, operation)
    assert sent["messages"] == body["messages"]
    assert sent["input"] == text
    assert sent["model"] == "engine-m"


SAMPLING: Json = {"best_of": 3, "logit_bias": {"5": -100}}


@pytest.mark.parametrize("field", SAMPLING)
@pytest.mark.parametrize("name", ALL)
def test_a_sampling_field_that_an_engine_is_said_to_lack_is_left_out_and_named(name: str, field: str) -> None:
    body = {"model": "m", "prompt": "hi", field: SAMPLING[field], "seed": None}
    upstream, sent = encoded(name, body, "text_completion")
    lacks = field not in capabilities(name)
    assert upstream.dropped == ((field,) if lacks else ())
    if lacks:
        assert SAMPLING[field] not in sent.values()


@pytest.mark.parametrize("name", ALL)
def test_a_best_of_that_asks_for_nothing_is_not_named(name: str) -> None:
    for nothing in (1, None):
        body = {"model": "m", "prompt": "hi", "best_of": nothing}
        assert encoded(name, body, "text_completion")[0].dropped == ()
