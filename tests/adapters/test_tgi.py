"""TGI's requests: what it refuses or misreads is put right, what it cannot do is said, all else passes."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from adapters.tgi import TGI
from adapters.types import EngineFailed, Operation
from tests.adapters.tgi_wire import PATHS, call

Json = dict[str, Any]
USER = {"role": "user", "content": "hi"}
CHAT: Json = {"model": "m", "messages": [USER], "temperature": 0.5}
TEXT: Json = {"model": "m", "prompt": "hi"}
TOOL: Json = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORMAT: Json = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}}
BASE: dict[Operation, Json] = {"chat": CHAT, "text_completion": TEXT}


def sent(fields: Json, operation: Operation = "chat", model: str | None = None) -> tuple[Json, tuple[str, ...]]:
    """The fields beside those of the base body that go to the engine, and the names of those left out."""
    base = BASE[operation]
    upstream = TGI.encode(call({**base, **fields}, operation), model)
    assert upstream.path == PATHS[operation]
    body: Json = json.loads(upstream.body)
    assert {key: body.pop(key) for key in base if key not in fields} == {
        key: value for key, value in base.items() if key not in fields
    }
    return body, upstream.dropped


def refusal(fields: Json, operation: Operation = "chat") -> EngineFailed:
    with pytest.raises(EngineFailed) as refused:
        sent(fields, operation)
    return refused.value


# --- what passes


@pytest.mark.parametrize("operation", list(BASE))
def test_a_body_that_needs_no_change_goes_out_byte_for_byte(operation: Operation) -> None:
    asked = call({**BASE[operation], "max_tokens": 5, "stop": ["a"], "seed": 1, "top_p": 0.9, "user": "u"}, operation)
    assert TGI.encode(asked, "m").body == asked.raw
    assert not TGI.encode(asked, "m").stream
    asked = call({**BASE[operation], "stream": True, "stream_options": {"include_usage": True}}, operation)
    assert TGI.encode(asked, "m").body == asked.raw
    assert TGI.encode(asked, "m").stream


def test_the_engines_name_of_the_model_is_sent_as_it_may_be_an_adapters() -> None:
    asked = call(CHAT)
    assert TGI.encode(asked, "lora-1").body == asked.raw.replace(b'"m"', b'"lora-1"')
    assert TGI.encode(asked, None).body == asked.raw


def test_other_paths_pass_with_the_model_changed_only() -> None:
    body = {"model": "m", "user": None, "presence_penalty": 1}
    upstream = TGI.encode(call(body, "other"), "n")
    assert json.loads(upstream.body) == {**body, "model": "n"}
    asked = call({}, "other")._replace(raw=b"--form", body={})
    assert TGI.encode(asked, "n").body == b"--form"


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("chat", {"n": 1, "modalities": ["text"], "functions": [], "function_call": "none"}),
        ("chat", {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": True}),
        ("chat", {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}),
        ("chat", {"response_format": {"type": "json", "value": SCHEMA}}),
        ("chat", {"response_format": {"type": "json_object", "value": SCHEMA}}),
        ("chat", {"response_format": {"type": "regex", "value": "a+"}}),
        ("chat", {"top_k": -1, "min_p": 0.0, "best_of": 1, "logprobs": True, "top_logprobs": 2}),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}),
        ("chat", {"messages": [USER, {"role": "assistant", "tool_calls": [{"id": "0"}]}]}),
        ("chat", {"messages": "nonsense", "tools": "nonsense", "stop": 3, "seed": "x", "top_p": "x"}),
        ("text_completion", {"n": 1, "echo": False, "logprobs": False, "repetition_penalty": 1.2}),
        ("text_completion", {"prompt": ["a", "b"], "stream": True}),
    ],
)
def test_what_the_engine_takes_or_ignores_harmlessly_passes(operation: Operation, fields: Json) -> None:
    assert sent(fields, operation) == (fields, ())


# --- what is put right


@pytest.mark.parametrize("operation", list(BASE))
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"stop": "END"}, {"stop": ["END"]}),
        ({"top_p": 1}, {}),
        ({"top_p": 1.0}, {}),
        ({"user": None, "seed": None, "stop": None, "stream": None, "max_tokens": None}, {}),
        ({"seed": -1}, {"seed": 2**64 - 1}),
        ({"max_completion_tokens": 8}, {"max_tokens": 8}),
        ({"max_completion_tokens": 8, "max_tokens": 16}, {"max_tokens": 8}),
        ({"max_completion_tokens": None, "max_tokens": 16}, {"max_tokens": 16}),
        ({"presence_penalty": 0}, {}),
        ({"presence_penalty": 0.0, "logit_bias": {}}, {}),
    ],
)
def test_what_the_engine_would_refuse_is_put_right_without_loss(
    operation: Operation, fields: Json, expected: Json
) -> None:
    assert sent(fields, operation) == (expected, ())


def test_a_suffix_of_nothing_is_left_out() -> None:
    assert sent({"suffix": ""}, "text_completion") == ({}, ())


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"stream": True, "stream_options": None}, {"stream": True, "stream_options": {"include_usage": True}}),
        (
            {"stream": True, "stream_options": {"include_usage": False}},
            {"stream": True, "stream_options": {"include_usage": True}},
        ),
        (
            {"stream": True, "stream_options": {"include_usage": True}},
            {"stream": True, "stream_options": {"include_usage": True}},
        ),
        ({"stream_options": None}, {}),
    ],
)
def test_a_chat_stream_is_always_asked_for_usage(fields: Json, expected: Json) -> None:
    assert sent(fields) == (expected, ())
    assert TGI.encode(call({**CHAT, **fields}), None).stream is (fields.get("stream") is True)


def test_a_completion_stream_has_usage_unasked() -> None:
    assert sent({"stream": True}, "text_completion") == ({"stream": True}, ())


def test_a_repetition_penalty_goes_where_chat_reads_it() -> None:
    body, dropped = sent({"repetition_penalty": 1.25})
    assert (body, dropped) == ({"presence_penalty": -0.75}, ())
    assert sent({"repetition_penalty": 1.0}) == ({}, ())
    assert sent({"repetition_penalty": 1.5, "presence_penalty": 1}) == (
        {"presence_penalty": -0.5},
        ("presence_penalty",),
    )
    assert sent({"repetition_penalty": "x"}) == ({}, ("repetition_penalty",))


def test_a_schema_goes_in_the_engines_own_shape() -> None:
    assert sent({"response_format": FORMAT}) == ({"response_format": {"type": "json", "value": SCHEMA}}, ())
    assert sent({"response_format": {"type": "text"}}) == ({}, ())


@pytest.mark.parametrize("tools", [{"tools": []}, {"tools": [TOOL], "tool_choice": "none"}])
def test_a_schema_beside_tools_that_are_not_wanted_goes_alone(tools: Json) -> None:
    body, dropped = sent({"response_format": FORMAT, **tools})
    assert body["response_format"] == {"type": "json", "value": SCHEMA}
    assert "tools" not in body
    assert dropped == ()


@pytest.mark.parametrize("nulls", [{}, {"parameters": None}, {"parameters": None, "arguments": None}], ids=str)
def test_a_tool_without_parameters_is_given_some(nulls: Json) -> None:
    bare: Json = {"type": "function", "function": {"name": "g", **nulls}}
    body, _ = sent({"tools": [TOOL, bare]})
    assert body["tools"] == [
        TOOL,
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
    ]


@pytest.mark.parametrize(
    ("message", "expected", "dropped"),
    [
        ({"role": "developer", "content": "x"}, {"role": "system", "content": "x"}, ()),
        ({"role": "assistant", "content": None}, {"role": "assistant", "content": ""}, ()),
        ({"role": "assistant"}, {"role": "assistant", "content": ""}, ()),
        (
            {"role": "assistant", "content": "", "tool_calls": [{"id": "0"}]},
            {"role": "assistant", "tool_calls": [{"id": "0"}]},
            (),
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [{"id": "0"}]},
            {"role": "assistant", "tool_calls": [{"id": "0"}]},
            (),
        ),
        (
            {"role": "assistant", "content": "Let me see.", "tool_calls": [{"id": "0"}]},
            {"role": "assistant", "tool_calls": [{"id": "0"}]},
            ("messages.content",),
        ),
    ],
)
def test_messages_are_put_right(message: Json, expected: Json, dropped: tuple[str, ...]) -> None:
    assert sent({"messages": [USER, message]}) == ({"messages": [USER, expected]}, dropped)


def test_a_large_prompt_is_spliced_and_not_written_anew() -> None:
    long = "the end " * 40_000
    asked = call({**CHAT, "messages": [{"role": "user", "content": long}], "stream": True})
    body = TGI.encode(asked, "n").body
    assert body.startswith(asked.raw[:-1].replace(b'"m"', b'"n"', 1))
    assert json.loads(body)["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("field", ["messages", "stop", "tools", "response_format"])
def test_what_is_put_right_in_a_large_body_is_whole(field: str) -> None:
    long = "x\u00e9" * 40_000
    bare: Json = {"type": "function", "function": {"name": "g", "description": long}}
    described = {"type": "json_schema", "json_schema": {"schema": {**SCHEMA, "description": long}}}
    fields: Json = {
        "messages": [{"role": "developer", "content": long}, {"role": "user", "content": long}],
        "stop": long,
        "tools": [bare],
        "response_format": described,
    }
    body, _ = sent({field: fields[field]})
    expected: Json = {
        "messages": [{"role": "system", "content": long}, {"role": "user", "content": long}],
        "stop": [long],
        "tools": [
            {
                "type": "function",
                "function": {**bare["function"], "parameters": {"type": "object", "properties": {}}},
            }
        ],
        "response_format": {"type": "json", "value": {**SCHEMA, "description": long}},
    }
    assert body == {field: expected[field]}


def test_numbers_that_no_double_holds_are_kept_in_what_is_put_right() -> None:
    limits = {"type": "object", "properties": {"a": {"maximum": 2**70 + 1}}}
    body, _ = sent({"response_format": {"type": "json_schema", "json_schema": {"schema": limits}}})
    assert body["response_format"]["value"] == limits


def test_a_body_whose_long_string_is_broken_is_the_clients_fault() -> None:
    raw = b'{"model":"m","stop":"a","messages":[{"role":"user","content":"%b"}]}' % (b"x" * 40_000 + b"\x01")
    asked = call(CHAT)._replace(raw=raw, body={"model": "m", "stop": "a"})
    with pytest.raises(EngineFailed, match="not valid JSON") as refused:
        TGI.encode(asked, "n")
    assert refused.value.status == 400


def test_encoding_leaves_the_request_alone() -> None:
    body: Json = {**CHAT, "messages": [{"role": "developer", "content": "x"}], "stream": True, "stream_options": {}}
    asked = call(body)
    TGI.encode(asked, "n")
    assert asked.body == body
    assert json.loads(asked.raw) == body


# --- what is left out, and said


@pytest.mark.parametrize("operation", list(BASE))
@pytest.mark.parametrize(
    "fields",
    [
        {"presence_penalty": 0.5},
        {"logit_bias": {"5": -100}},
        {"top_k": 5},
        {"min_p": 0.1},
        {"typical_p": 0.9},
        {"best_of": 2},
        {"presence_penalty": -2, "logit_bias": {"1": 1}, "top_k": 1},
    ],
)
def test_fields_that_only_tune_sampling_are_left_out_and_named(operation: Operation, fields: Json) -> None:
    assert sent(fields, operation) == ({}, tuple(fields))


def test_reasoning_effort_is_left_out_and_named() -> None:
    assert sent({"reasoning_effort": "high"}) == ({}, ("reasoning_effort",))


# --- what is refused


REFUSED: list[tuple[Operation, Json, str]] = [
    ("chat", {"n": 2}, "n"),
    ("chat", {"functions": [{"name": "f"}]}, "functions"),
    ("chat", {"function_call": {"name": "f"}}, "function_call"),
    ("chat", {"modalities": ["text", "audio"]}, "modalities"),
    ("chat", {"audio": {"voice": "v"}}, "audio"),
    ("chat", {"response_format": {"type": "json_object"}}, "response_format"),
    ("chat", {"response_format": FORMAT, "tools": [TOOL]}, "response_format"),
    ("chat", {"tools": [{"type": "web_search"}]}, "tools"),
    ("chat", {"tools": [3]}, "tools"),
    ("chat", {"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
    ("chat", {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages"),
    ("chat", {"messages": [{"role": "user", "content": [{"type": {}}]}]}, "messages"),
    ("text_completion", {"n": 2}, "n"),
    ("text_completion", {"echo": True}, "echo"),
    ("text_completion", {"logprobs": 0}, "logprobs"),
    ("text_completion", {"logprobs": 5}, "logprobs"),
    ("text_completion", {"suffix": "x"}, "suffix"),
    ("text_completion", {"response_format": FORMAT}, "response_format"),
    ("text_completion", {"prompt": [1, 2, 3]}, "prompt"),
    ("text_completion", {"prompt": [[1, 2], [3]]}, "prompt"),
]


@pytest.mark.parametrize(("operation", "fields", "param"), REFUSED)
def test_fields_that_change_the_answers_shape_are_refused(operation: Operation, fields: Json, param: str) -> None:
    error = refusal(fields, operation)
    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", param)
    assert "tgi" in error.message
    assert error.type == "invalid_request_error"


def test_embeddings_are_refused() -> None:
    with pytest.raises(EngineFailed, match="text-embeddings-inference") as refused:
        TGI.encode(call({"model": "m", "input": "x"}, "embeddings"), "n")
    assert (refused.value.status, refused.value.code) == (404, "unsupported_operation")


JUNK: tuple[Any, ...] = (None, 0, -1, 1.5, True, "", "x", [], {}, [None], [[]], [{}], {"type": []}, {"type": "x"})
ODD_MESSAGES: list[list[Json]] = [[{"content": [{}, 1], "tool_calls": 1}], [{"role": [], "content": {}}]]
SOME_FIELDS = ("messages", "prompt", "tools", "tool_choice", "response_format", "stop", "seed", "top_p", "n", "echo")
MORE_FIELDS = ("logit_bias", "presence_penalty", "repetition_penalty", "stream_options", "logprobs", "suffix", "top_k")


@pytest.mark.parametrize("operation", list(BASE))
@pytest.mark.parametrize("field", [*SOME_FIELDS, *MORE_FIELDS, "max_completion_tokens"])
def test_nonsense_in_any_field_is_passed_or_refused(operation: Operation, field: str) -> None:
    for value in (*JUNK, *ODD_MESSAGES):
        with suppress(EngineFailed):
            upstream = TGI.encode(call({**BASE[operation], field: value, "stream": True}, operation), "n")
            assert json.loads(upstream.body)["stream"] is True


def test_it_tells_how_it_is_probed() -> None:
    assert (TGI.name, TGI.health_path) == ("tgi", "/health")
    assert 0 < TGI.idle_s < 5
