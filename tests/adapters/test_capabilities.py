"""What each engine can do, what a call needs, and what a client is told when the two do not meet."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from adapters import ADAPTERS
from adapters.bodies import SKELETON_BYTES, read_object
from adapters.capabilities import EVERYTHING, NOTHING, Capability, capabilities, needed, unsupported
from adapters.types import EngineName, GatewayRequest, Operation

PATHS: dict[Operation, str] = {
    "chat": "/v1/chat/completions",
    "text_completion": "/v1/completions",
    "embeddings": "/v1/embeddings",
    "other": "/v1/rerank",
}
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
OPENAI_SPEAKERS = set(ADAPTERS) - {"tgi", "ollama", "lightllm"}
CALLERS = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
TEXT = {"type": "text", "text": "what is this?"}


def request(operation: Operation, fields: dict[str, Any], *, stream: bool = False) -> GatewayRequest:
    body = {"model": "m", **fields}
    return GatewayRequest("r", operation, PATHS[operation], "POST", "m", stream, json.dumps(body).encode(), body, 0)


def chat(**fields: Any) -> GatewayRequest:
    return request("chat", {"messages": CALLERS, **fields})


def said(*parts: Any) -> GatewayRequest:
    return chat(messages=[*CALLERS, {"role": "user", "content": [*parts]}])


def text(*, stream: bool = False, **fields: Any) -> GatewayRequest:
    return request("text_completion", {"prompt": "once", **fields}, stream=stream)


# --- what a call needs

NONE: set[str] = set()

SAMPLING: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 1,
    "max_tokens": 5,
    "max_completion_tokens": 5,
    "stop": ["x"],
    "seed": 7,
    "logit_bias": {"5": -100},
    "presence_penalty": 1,
    "frequency_penalty": 1,
    "reasoning_effort": "low",
    "best_of": 3,
    "user": "me",
    "stream": True,
    "stream_options": {"include_usage": True},
    "parallel_tool_calls": True,
    "unheard_of": {"n": 2},
}


@pytest.mark.parametrize("name", SAMPLING)
def test_what_tunes_the_sampling_excludes_nobody(name: str) -> None:
    assert needed(chat(**{name: SAMPLING[name]})) == NOTHING
    assert needed(text(**{name: SAMPLING[name]})) == NOTHING


@pytest.mark.parametrize(
    ("call", "needs"),
    [
        (chat(tools=TOOLS), {"tools"}),
        (chat(tools=TOOLS, tool_choice="auto"), {"tools"}),
        (chat(tools=TOOLS, tool_choice="none"), NONE),
        (chat(tools=TOOLS, tool_choice="required"), {"tools", "forced_tool_choice"}),
        (
            chat(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "f"}}),
            {"tools", "forced_tool_choice"},
        ),
        (chat(tools=[], tool_choice="required"), NONE),
        (chat(response_format={"type": "text"}), NONE),
        (chat(response_format={"type": "json_object"}), {"json_object"}),
        (chat(response_format={"type": "json_schema", "json_schema": {}}), {"json_schema"}),
        (chat(logprobs=True), {"logprobs"}),
        (chat(logprobs=True, top_logprobs=2), {"logprobs", "top_logprobs"}),
        (chat(logprobs=True, top_logprobs=0), {"logprobs"}),
        (chat(logprobs=False), NONE),
        (chat(n=1), NONE),
        (chat(n=2), {"n"}),
        (said(TEXT), NONE),
        (said(TEXT, IMAGE), {"images"}),
        (said(SOUND), {"audio"}),
        (said(IMAGE, SOUND, {"type": "of the future"}), {"images", "audio"}),
        (chat(tools=TOOLS, n=3, response_format={"type": "json_object"}), {"tools", "n", "json_object"}),
        (text(prompt=["one"]), NONE),
        (text(prompt=["one", "two"]), {"prompt_list"}),
        (text(prompt=["one", "two"], stream=True), {"streamed_prompt_list"}),
        (text(prompt=[1, 2, 3]), {"prompt_token_ids"}),
        (text(prompt=[[1, 2, 3]]), {"prompt_token_ids"}),
        (text(prompt=[[1], [2]]), {"prompt_token_ids", "prompt_list"}),
        (text(prompt=[]), NONE),
        (text(logprobs=0), {"text_logprobs"}),
        (text(logprobs=3), {"text_logprobs"}),
        (text(logprobs=3, stream=True), {"streamed_text_logprobs"}),
        (text(logprobs=None), NONE),
        (text(echo=True), {"echo"}),
        (text(echo=False), NONE),
        (text(suffix="the end"), {"suffix"}),
        (text(suffix=""), NONE),
        (text(n=2), {"n"}),
        (chat(guided_json={}), {"structured_outputs"}),
        (text(guided_choice=["a"]), {"structured_outputs"}),
        (chat(structured_outputs={"regex": "a"}, n=2), {"structured_outputs", "n"}),
        (text(json_schema={}), {"bare_json_schema"}),
        (chat(regex="a", ebnf="", grammar=None), {"regex"}),
        (text(ebnf="a"), {"ebnf"}),
        (chat(grammar="a"), {"grammar"}),
        (chat(prompt_logprobs=0), {"prompt_logprobs"}),
        (chat(prompt_logprobs=False, return_token_ids=True), {"return_token_ids"}),
        (request("embeddings", {"input": "x"}), {"embeddings"}),
        (request("other", {"n": 2, "tools": TOOLS}), NONE),
    ],
)
def test_what_shapes_the_answer_is_needed(call: GatewayRequest, needs: set[str]) -> None:
    assert needed(call) == needs


def test_a_plain_call_makes_no_set_of_its_own() -> None:
    assert needed(chat()) is NOTHING
    assert needed(text()) is NOTHING


def test_explicit_nulls_need_nothing() -> None:
    fields = dict.fromkeys(("tools", "tool_choice", "response_format", "logprobs", "top_logprobs", "n"))
    assert needed(chat(**fields)) == NOTHING
    assert needed(text(response_format=None, logprobs=None, n=None, echo=None, suffix=None)) == NOTHING


def test_a_body_whose_long_strings_are_cut_out_needs_the_same() -> None:
    url = "data:image/png;base64," + "A" * (4 * SKELETON_BYTES)
    fields = {
        "model": "m",
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}],
        "n": 2,
    }
    raw = json.dumps(fields).encode()
    body = read_object(raw)
    assert len(json.dumps(body)) < len(raw)
    assert needed(chat()._replace(raw=raw, body=body)) == {"images", "n"}


@pytest.mark.parametrize("other", [{"role": "assistant"}, {"role": "assistant", "content": None}, None, "x", ["x"]])
def test_an_image_is_found_beside_any_other_message(other: Any) -> None:
    shown = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
    said = {"role": "user", "content": "x"}
    for messages in ([other, shown], [shown, other], [said, other, shown]):
        assert needed(request("chat", {"messages": messages})) == {"images"}
    assert needed(request("chat", {"messages": [said, other]})) == set()


ODD: list[Any] = [None, True, False, 0, -1, 2.5, 10**30, "", "x", [], [[]], [None], [{}], ["x", 1], {}, {"type": []}]
ODD_PARTS: list[Any] = [{"type": "?"}, [{"type": {}}], [{"content": 7}], [{"content": [[], None, 7, {"type": []}]}]]
FIELDS = (
    "messages",
    "prompt",
    "tools",
    "tool_choice",
    "response_format",
    "logprobs",
    "top_logprobs",
    "n",
    "echo",
    "suffix",
)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("operation", PATHS)
def test_fields_of_any_type_are_read_without_a_fault(operation: Operation, field: str) -> None:
    others: dict[str, Any] = {"tools": TOOLS, "logprobs": True, "n": 2}
    for value in (*ODD, *ODD_PARTS):
        for fields in ({field: value}, {**others, field: value}):
            call = request(operation, fields)
            needs = needed(call)
            assert needs <= EVERYTHING
            assert not needs or unsupported("x", needs, call).code == "unsupported_parameter"


# --- what an engine can do


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_chats_completes_and_streams(engine: str) -> None:
    assert {"chat", "text_completion", "streaming", "usage", "tools", "seed"} <= capabilities(engine) <= EVERYTHING


def test_nothing_is_known_against_a_server_that_is_not_known() -> None:
    assert capabilities("openai") == capabilities("of the future") == EVERYTHING
    assert set(get_args(Capability)) == EVERYTHING


def test_every_adapter_is_of_an_engine_in_the_table() -> None:
    assert set(ADAPTERS) <= set(ENGINES)


@pytest.mark.parametrize(
    ("call", "able"),
    [
        (chat(tools=TOOLS, tool_choice="required"), {"openai", "vllm", "sglang", "tgi", "lmdeploy", "trtllm"}),
        (chat(n=2), {"openai", "vllm", "sglang", "llamacpp", "lightllm", "trtllm"}),
        (chat(response_format={"type": "json_object"}), {*ENGINES} - {"tgi"}),
        (chat(response_format={"type": "json_schema"}), {*ENGINES}),
        (chat(logprobs=True), {*ENGINES} - {"lightllm"}),
        (said(IMAGE), {*ENGINES}),
        (said(SOUND), {*ENGINES} - {"tgi", "ollama", "lightllm"}),
        (text(prompt=["a", "b"]), {*ENGINES} - {"ollama"}),
        (text(prompt=["a", "b"], stream=True), {*ENGINES} - {"ollama", "lightllm", "lmdeploy"}),
        (text(prompt=[1, 2]), {*ENGINES} - {"tgi", "ollama", "lmdeploy"}),
        (text(logprobs=1), {*ENGINES} - {"tgi", "lmdeploy"}),
        (text(echo=True), {"openai", "vllm", "sglang", "lightllm", "trtllm"}),
        (text(suffix="x"), {"openai", "vllm", "sglang", "ollama"}),
        (request("embeddings", {"input": "x"}), {*ENGINES} - {"tgi", "lightllm", "lmdeploy"}),
        (chat(guided_regex="a"), OPENAI_SPEAKERS),
        (text(regex="a"), OPENAI_SPEAKERS),
        (chat(json_schema={}), OPENAI_SPEAKERS),
        (text(grammar="a"), OPENAI_SPEAKERS),
        (chat(prompt_logprobs=1), OPENAI_SPEAKERS),
        (chat(return_token_ids=True), OPENAI_SPEAKERS),
        (chat(**SAMPLING), {*ENGINES}),
    ],
)
def test_a_call_goes_to_the_engines_that_can(call: GatewayRequest, able: set[str]) -> None:
    assert {engine for engine in ENGINES if needed(call) <= capabilities(engine)} == able


@pytest.mark.parametrize(
    ("engine", "version", "capability", "able"),
    [
        ("ollama", "0.12.10", "logprobs", False),
        ("ollama", "0.12.11", "logprobs", True),
        ("ollama", "0.33.0-rc2", "logprobs", True),
        ("ollama", "0.9", "text_logprobs", False),
        ("ollama", "0.0.0", "logprobs", True),
        ("vllm", "0.8.2", "forced_tool_choice", False),
        ("vllm", "0.8.3rc1", "forced_tool_choice", True),
        ("vllm", "v0.33.0+cpu", "forced_tool_choice", True),
        ("vllm", "0.1.dev1+g4ba787ec9", "forced_tool_choice", True),
        ("vllm", "", "forced_tool_choice", True),
        ("vllm", "9" * 5000, "forced_tool_choice", True),
        ("vllm", "main", "forced_tool_choice", True),
    ],
)
def test_an_old_version_lacks_what_came_later(engine: str, version: str, capability: str, able: bool) -> None:
    assert (capability in capabilities(engine, version)) is able


# --- what the client is told


@pytest.mark.parametrize(
    ("engine", "call", "param"),
    [
        ("tgi", chat(n=2), "n"),
        ("tgi", chat(response_format={"type": "json_object"}), "response_format"),
        ("ollama", chat(tools=TOOLS, tool_choice="required"), "tool_choice"),
        ("lightllm", chat(logprobs=True, top_logprobs=1), "logprobs"),
        ("ollama", said(SOUND), "messages"),
        ("tgi", text(prompt=[1]), "prompt"),
        ("lightllm", text(prompt=["a", "b"], stream=True), "prompt"),
        ("trtllm", text(suffix="x"), "suffix"),
        ("llamacpp", text(echo=True), "echo"),
        ("tgi", request("embeddings", {"input": "x"}), "model"),
        ("ollama", chat(guided_json={"type": "object"}), "guided_json"),
        ("tgi", chat(grammar="a"), "grammar"),
        ("lightllm", chat(structured_outputs={"regex": "a"}), "structured_outputs"),
    ],
)
def test_the_refusal_names_the_engine_the_field_and_the_path(engine: str, call: GatewayRequest, param: str) -> None:
    told = unsupported(engine, needed(call) - capabilities(engine), call)
    assert (told.status, told.code, told.param) == (400, "unsupported_parameter", param)
    assert all(word in told.message for word in (engine, param, call.path))


@pytest.mark.parametrize("engine", ENGINES)
def test_every_refusal_has_words_and_the_same_ones_each_time(engine: str) -> None:
    missing = EVERYTHING - capabilities(engine)
    for capability in missing:
        call = next((c for c in EACH if capability in needed(c)), None)
        if call is not None:
            told = [unsupported(engine, frozenset((capability,)), call).message for _ in range(2)]
            assert told[0] == told[1]


EACH = [
    chat(tools=TOOLS, tool_choice="required", n=2, logprobs=True, top_logprobs=1),
    chat(response_format={"type": "json_object"}),
    chat(response_format={"type": "json_schema"}),
    said(IMAGE, SOUND),
    text(prompt=[[1], [2]], logprobs=1, echo=True, suffix="x"),
    text(prompt=["a", "b"], logprobs=1, stream=True),
    request("embeddings", {"input": "x"}),
]
