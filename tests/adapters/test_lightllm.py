"""LightLLM: requests as it takes them, and its streams, answers and errors as clients take them.

Nothing here was recorded, as the engine needs a GPU: the frames are those that its source writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from adapters.bodies import read_object
from adapters.lightllm import LIGHTLLM
from adapters.types import (
    Adapter,
    AdapterError,
    EngineFailed,
    GatewayRequest,
    MalformedStream,
    Operation,
    TruncatedStream,
    Usage,
)
from tests.fakes.answer_heads import answer_head

Json = dict[str, Any]

REGISTERED: Adapter = LIGHTLLM
PATHS: dict[Operation, str] = {
    "chat": "/v1/chat/completions",
    "text_completion": "/v1/completions",
    "embeddings": "/v1/embeddings",
    "other": "/tokens",
}
USER: Json = {"role": "user", "content": "hi"}
CHAT: Json = {"model": "m", "messages": [USER], "temperature": 0.5}
TEXT: Json = {"model": "m", "prompt": "Once", "max_tokens": 9}
USAGE_ASKED: Json = {"stream_options": {"include_usage": True}}
BASE: dict[Operation, Json] = {"chat": CHAT, "text_completion": TEXT}
SCHEMA: Json = {"type": "json_schema", "json_schema": {"name": "n", "strict": None, "schema": {"type": "object"}}}


def call(body: Json, operation: Operation = "chat", raw: bytes | None = None) -> GatewayRequest:
    data = json.dumps(body).encode() if raw is None else raw
    return GatewayRequest(
        request_id="r1",
        operation=operation,
        path=PATHS[operation],
        method="POST",
        model=str(body.get("model", "m")),
        stream=body.get("stream") is True,
        raw=data,
        body=read_object(data),
        created_unix_s=1,
    )


def sent(fields: Json, operation: Operation = "chat") -> tuple[Json, tuple[str, ...]]:
    """What of ``fields`` (and beside them) goes to the engine, and the names of those left out."""
    base = {key: value for key, value in BASE[operation].items() if key not in fields}
    upstream = LIGHTLLM.encode(call({**base, **fields}, operation), None)
    body: Json = json.loads(upstream.body)
    assert {key: body.pop(key) for key in base} == base
    assert upstream.path == PATHS[operation]
    assert upstream.stream == (fields.get("stream") is True)
    return body, upstream.dropped


def refusal(fields: Json, operation: Operation = "chat") -> EngineFailed:
    with pytest.raises(EngineFailed) as refused:
        sent(fields, operation)
    return refused.value


# --- requests


@pytest.mark.parametrize("operation", list(BASE))
@pytest.mark.parametrize("stream", [False, True])
def test_a_body_that_needs_no_change_goes_out_byte_for_byte(operation: Operation, stream: bool) -> None:
    body = {**BASE[operation], "stream": stream, "stream_options": {"include_usage": True}, "stop": "a", "user": "u"}
    asked = call(body, operation)
    assert LIGHTLLM.encode(asked, "m").body == asked.raw
    assert LIGHTLLM.encode(asked, "org/m").body == asked.raw.replace(b'"m"', b'"org/m"')


@pytest.mark.parametrize("options", [{}, {"stream_options": None}, {"stream_options": {"include_usage": False}}])
def test_usage_is_asked_for_in_every_stream_as_some_builds_send_it_only_then(options: Json) -> None:
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    assert sent({"stream": True, **options}) == (asked, ())
    assert sent({"stream": False, "stream_options": {"x": 1}}) == ({"stream": False, "stream_options": {"x": 1}}, ())


def test_a_field_to_be_added_is_spliced_into_the_clients_own_bytes() -> None:
    raw = b'{ "model":"m", "stream" : true, "messages": [ {"role":"developer", "content":"a"} ]}'
    upstream = LIGHTLLM.encode(call({"stream": True}, raw=raw), "n")
    spliced = raw.replace(b'"m"', b'"n"').replace(b'"developer"', b'"system"')
    assert upstream.body == spliced[:-1] + b',"stream_options":{"include_usage":true}}'


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("chat", {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"}),
        ("chat", {"tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": False}),
        ("chat", {"response_format": {"type": "json_object"}, "n": 8, "stop": ["a"] * 10}),
        ("chat", {"response_format": SCHEMA, "reasoning_effort": "high", "seed": -1}),
        ("chat", {"chat_template_kwargs": {"enable_thinking": None}, "top_k": 20, "zzz": 1, "metadata": {"a": None}}),
        ("chat", {"logprobs": False, "top_logprobs": 0, "functions": [], "function_call": "none"}),
        ("chat", {"modalities": ["text"], "min_p": 0.0, "min_tokens": 0, "stop_token_ids": []}),
        ("chat", {"presence_penalty": 0, "frequency_penalty": 2, "repetition_penalty": 1.0, "top_p": 1, "top_k": -1}),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]}),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "audio_url", "audio_url": {"url": "http:"}}]}]}),
        ("chat", {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [{"id": "0"}]}]}),
        ("chat", {"stop": "", "max_completion_tokens": 5, "max_tokens": 9}),
        ("text_completion", {"prompt": [1, 2, 3], "stream": True, **USAGE_ASKED}),
        ("text_completion", {"prompt": [[1, 2, 3]], "stream": True, "logprobs": False, **USAGE_ASKED}),
        ("text_completion", {"prompt": ["a"], "stream": True, "echo": True, "suffix": "", **USAGE_ASKED}),
        ("text_completion", {"prompt": ["a", "b"], "echo": True, "logprobs": 0}),
        ("text_completion", {"prompt": [[1], [2, 3]], "logprobs": 5, "n": 2, "best_of": 2}),
    ],
)
def test_what_the_engine_takes_or_ignores_without_harm_passes(operation: Operation, fields: Json) -> None:
    assert sent(fields, operation) == (fields, ())


@pytest.mark.parametrize("operation", list(BASE))
def test_nulls_are_left_out_as_they_mean_the_default(operation: Operation) -> None:
    nulls = ("top_p", "top_k", "n", "stop", "seed", "presence_penalty", "logit_bias", "function_call", "stream_options")
    assert sent({**dict.fromkeys(nulls), "user": None, "stream": False}, operation) == ({"stream": False}, ())


@pytest.mark.parametrize("operation", list(BASE))
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("presence_penalty", -0.5),
        ("frequency_penalty", -2),
        ("repetition_penalty", 0.9),
        ("top_p", 0),
        ("top_k", 0),
        ("seed", -2),
        ("seed", 2**63),
        ("seed", 2**80),
        ("logit_bias", {"50256": -100}),
        ("min_p", 0.1),
        ("min_tokens", 4),
        ("stop_token_ids", [1]),
        ("best_of", 3),
    ],
)
def test_sampling_that_the_engine_cannot_do_is_left_out_and_named(
    operation: Operation, field: str, value: object
) -> None:
    assert sent({field: value}, operation) == ({}, (field,))


def test_one_tool_call_at_a_time_is_what_the_engine_does_not_see_to() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert sent({"tools": tools, "parallel_tool_calls": False}) == ({"tools": tools}, ("parallel_tool_calls",))
    for fields in ({"tools": tools, "parallel_tool_calls": True}, {"parallel_tool_calls": False}):
        assert sent(fields) == (fields, ())


def test_a_logit_bias_of_nothing_is_left_out_unnamed() -> None:
    assert sent({"logit_bias": {}}) == ({}, ())


@pytest.mark.parametrize(
    "fields",
    [{"top_p": 1.5}, {"repetition_penalty": -1}, {"temperature": -1}, {"top_k": -2}, {"seed": "x"}, {"top_p": "x"}],
)
def test_what_nobody_takes_is_for_the_engine_to_refuse(fields: Json) -> None:
    assert sent(fields) == (fields, ())


@pytest.mark.parametrize(
    ("effort", "expected"),
    [("none", "low"), ("minimal", "low"), ("medium", "medium"), ("xhigh", "high"), ("max", "high")],
)
def test_a_reasoning_effort_becomes_the_nearest_there_is(effort: str, expected: str) -> None:
    assert sent({"reasoning_effort": effort}) == ({"reasoning_effort": expected}, ())


@pytest.mark.parametrize("effort", ["great", 3, {}, ["low"]])
def test_a_reasoning_effort_near_to_none_is_left_out_and_named(effort: object) -> None:
    assert sent({"reasoning_effort": effort}) == ({}, ("reasoning_effort",))


@pytest.mark.parametrize(
    ("fields", "expected", "dropped"),
    [
        ({"n": 2}, {"n": 2, "best_of": 2}, ()),
        ({"n": 2, "best_of": None}, {"n": 2, "best_of": 2}, ()),
        ({"n": 2, "best_of": 5}, {"n": 2, "best_of": 2}, ("best_of",)),
        ({"n": 1, "best_of": 1}, {"n": 1, "best_of": 1}, ()),
    ],
)
def test_several_completions_need_as_many_to_choose_from(
    fields: Json, expected: Json, dropped: tuple[str, ...]
) -> None:
    assert sent(fields, "text_completion") == (expected, dropped)


@pytest.mark.parametrize(
    ("operation", "fields", "param"),
    [
        ("chat", {"logprobs": True}, "logprobs"),
        ("chat", {"top_logprobs": 2}, "top_logprobs"),
        ("chat", {"functions": [{"name": "f"}]}, "functions"),
        ("chat", {"function_call": "auto"}, "function_call"),
        ("chat", {"function_call": {"name": "f"}}, "function_call"),
        ("chat", {"modalities": ["text", "audio"]}, "modalities"),
        ("chat", {"audio": {"voice": "alloy"}}, "modalities"),
        ("chat", {"n": 9}, "n"),
        ("chat", {"stop": ["a"] * 11}, "stop"),
        ("chat", {"stop": "é" * 128}, "stop"),
        ("chat", {"stop": ["a", "b" * 256]}, "stop"),
        ("chat", {"response_format": {"type": "grammar"}}, "response_format"),
        (
            "chat",
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": ["x" * 2048]}}}},
            "response_format",
        ),
        ("chat", {"guided_json": {"type": "object"}}, "guided_json"),
        ("chat", {"return_token_ids": True}, "return_token_ids"),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages"),
        ("chat", {"messages": [USER, {"role": "user", "content": [{"type": "file"}]}]}, "messages"),
        ("text_completion", {"suffix": "end"}, "suffix"),
        ("text_completion", {"logprobs": 0, "stream": True}, "logprobs"),
        ("text_completion", {"prompt": ["a", "b"], "stream": True}, "prompt"),
        ("text_completion", {"prompt": [[1], [2]], "stream": True}, "prompt"),
        ("text_completion", {"guided_regex": "a+"}, "guided_regex"),
    ],
)
def test_what_would_change_the_answers_shape_is_refused_by_name(operation: Operation, fields: Json, param: str) -> None:
    refused = refusal(fields, operation)
    assert (refused.status, refused.code, refused.param) == (400, "unsupported_parameter", param)
    assert refused.message.startswith("lightllm ")
    assert param in refused.message


def test_there_are_no_embeddings() -> None:
    with pytest.raises(EngineFailed, match="lightllm cannot make embeddings") as refused:
        LIGHTLLM.encode(call({"model": "m", "input": "a"}, "embeddings"), None)
    assert (refused.value.status, refused.value.code) == (400, "unsupported_parameter")


def test_other_paths_pass_with_the_model_changed_only() -> None:
    body = {"model": "m", "text": None, "logit_bias": {"1": 1}, "presence_penalty": -1}
    upstream = LIGHTLLM.encode(call(body, "other"), "n")
    assert json.loads(upstream.body) == {**body, "model": "n"}
    form = call({}, "other")._replace(raw=b"--form", body={})
    assert LIGHTLLM.encode(form, "n").body == b"--form"


NONSENSE: list[Json] = [
    {"messages": "x", "tools": 1, "stop": {}, "n": "2", "response_format": [], "reasoning_effort": None},
    {"messages": [1, {"role": ["developer"]}, {"content": {"type": "x"}}, {"content": [3, {"type": {}}]}]},
    {"prompt": {}, "logprobs": [], "best_of": {}, "modalities": "audio", "logit_bias": "x"},
    {"response_format": {"type": 3, "json_schema": {"schema": []}}, "top_p": [], "seed": {}},
]


@pytest.mark.parametrize("fields", NONSENSE)
@pytest.mark.parametrize("operation", list(BASE))
def test_fields_of_any_type_raise_only_adapter_errors(operation: Operation, fields: Json) -> None:
    body = {**BASE[operation], **fields}
    upstream = LIGHTLLM.encode(call(body, operation), "n")
    assert json.loads(upstream.body)["model"] == "n"


def test_a_schema_nested_too_deeply_is_refused() -> None:
    deep = b'{"messages":[],"response_format":{"json_schema":{"schema":%b1%b}}}' % (b'{"a":' * 300, b"}" * 300)
    with pytest.raises(EngineFailed, match="JSON schema"):
        LIGHTLLM.encode(call({"model": "m"}, raw=deep), None)


# --- the role developer


def roles(raw: bytes) -> list[str]:
    return [message["role"] for message in json.loads(raw)["messages"]]


def test_developers_become_system_in_their_places_within_the_clients_own_bytes() -> None:
    raw = b"""{ "messages" : [{"role":"system","content":"A"}, {"role" :\n "developer","content":"say \\"developer"},
        {"role":"user","content":"\\"role\\": \\"developer\\""},
        {"content":["developer"],"role":"developer"}],"x":"developer"}"""
    upstream = LIGHTLLM.encode(call({}, raw=raw), None)
    assert roles(upstream.body) == ["system", "system", "user", "system"]
    start, rest = raw.split(b'"developer","content"')
    assert upstream.body == start + b'"system","content"' + rest.replace(b'"role":"developer"', b'"role":"system"')


@pytest.mark.parametrize(
    "raw",
    [
        b'{"messages":[{"role":"developer","content":"A"}],"tools":[{"role":"developer"}]}',
        b'{"messages":[{"r\\u006fle":"developer","content":"A"}]}',
        b'{"messages":[{"role":"d\\u0065veloper","content":"A"}],"y":[{"role":"developer"}]}',
        b'{"messages":[{"role":%b"developer","content":"A"}]}' % (b" " * 100),
        b'{"messages":[{"role":"developer","role":"user"},{"role":"developer"},7]}',
    ],
)
def test_a_developer_in_any_spelling_becomes_system_and_nothing_else_does(raw: bytes) -> None:
    before: Json = json.loads(raw)
    after: Json = json.loads(LIGHTLLM.encode(call({}, raw=raw), None).body)
    for message in before["messages"]:
        if message != 7 and message["role"] == "developer":
            message["role"] = "system"
    assert after == before


@pytest.mark.parametrize("fields", [{}, {"user": None}, {"n": 2}, {"reasoning_effort": "minimal"}, {"min_p": 0.5}])
@pytest.mark.parametrize("text", ['the "developer" \\ é😀\n', "\u0001 control"])
def test_a_large_prompt_arrives_whole(fields: Json, text: str) -> None:
    messages = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": text * 9_000}]
    sent_fields, _ = sent({"messages": messages, **fields})
    assert sent_fields["messages"] == [{"role": "system", "content": "be brief"}, messages[1]]
    sent_text, _ = sent({"prompt": text * 9_000, **fields}, "text_completion")
    assert sent_text["prompt"] == text * 9_000


def test_a_body_that_is_no_json_where_it_was_not_looked_at_is_the_clients_mistake() -> None:
    raw = b'{"model":"m","user":null,"messages":[{"role":"user","content":"%b\\q%b"}]}' % (b"a" * 30_000, b"a" * 30_000)
    with pytest.raises(EngineFailed, match="not valid JSON") as refused:
        LIGHTLLM.encode(call({"model": "m"}, raw=raw), None)
    assert refused.value.status == 400


# --- streams


def page(value: Any) -> bytes:
    """JSON with spaces."""
    return json.dumps(value, ensure_ascii=False).encode()


def ujson(value: Any) -> bytes:
    """JSON as ujson writes it: without spaces, and with slashes escaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("/", "\\/").encode()


SPELLINGS = (page, ujson)
MODEL = "org/m"  # what the engine was asked for, and repeats
USAGE: Json = {
    "prompt_tokens": 12,
    "completion_tokens": 9,
    "total_tokens": 21,
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
}


def chat_chunk(delta: Json, finish: str | None = None, index: int = 0) -> Json:
    last = {"token_ids": None} if finish is None else {"token_ids": None, "stop_reason": None}
    choice = {"index": index, "delta": delta, "logprobs": None, **last, "finish_reason": finish}
    return envelope("chatcmpl-5f0c", "chat.completion.chunk", [choice])


def text_chunk(text: str, finish: str | None = None, index: int = 0) -> Json:
    choice = {"text": text, "index": index, "logprobs": None, "finish_reason": finish}
    return {**envelope("176", "text_completion", [choice]), "usage": None}


def envelope(answer_id: str, kind: str, choices: list[Json]) -> Json:
    return {"id": answer_id, "object": kind, "created": 1787300000, "model": MODEL, "choices": choices}


def usage_chunk(operation: Operation) -> Json:
    if operation == "chat":
        return {**envelope("chatcmpl-5f0c", "chat.completion.chunk", []), "usage": USAGE}
    return {**envelope("176", "text_completion", []), "usage": USAGE}


ROLE = {**chat_chunk({"role": "assistant", "content": ""}), "prompt_token_ids": None}
WORDS = ("Hel", " a/b", ' "q\\', " 京😀é\u2028", " end")
CHAT_CHUNKS = [
    ROLE,
    chat_chunk({"reasoning": "Let me"}),
    chat_chunk({"reasoning": " think"}),
    *(chat_chunk({"content": word}) for word in WORDS),
    chat_chunk({"content": "!"}, "stop"),
]
TEXT_CHUNKS = [*(text_chunk(word) for word in WORDS), text_chunk("!", "stop")]
TOOL_CHUNKS = [
    ROLE,
    chat_chunk({"content": "I look."}),
    chat_chunk(
        {"tool_calls": [{"id": "call_a", "index": 0, "type": "function", "function": {"name": "f", "arguments": ""}}]}
    ),
    *(chat_chunk({"tool_calls": [{"index": 0, "function": {"arguments": part}}]}) for part in ("{", '"x": 1', "}")),
    chat_chunk(
        {"tool_calls": [{"id": "call_b", "index": 1, "type": "function", "function": {"name": "g", "arguments": ""}}]}
    ),
    chat_chunk({"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}),
    chat_chunk({}, "stop"),
]
CHUNKS: dict[str, tuple[Operation, list[Json]]] = {
    "chat": ("chat", CHAT_CHUNKS),
    "tools": ("chat", TOOL_CHUNKS),
    "two choices": (
        "chat",
        [
            ROLE,
            chat_chunk({"role": "assistant", "content": ""}, index=1),
            chat_chunk({"content": "A"}),
            chat_chunk({"content": "x"}, index=1),
            chat_chunk({"content": "y"}, "length", index=1),
            chat_chunk({"content": "B"}, "stop"),
        ],
    ),
    "text": ("text_completion", TEXT_CHUNKS),
}


def wire(
    operation: Operation, chunks: Iterable[Json], spelling: Any, *, space: bool = True, done: bool = True
) -> bytes:
    start = b"data: " if space else b"data:"
    frames = [*chunks, usage_chunk(operation)] if done else [*chunks]
    body = b"".join(start + spelling(chunk) + b"\n\n" for chunk in frames)
    return body + start + b"[DONE]\n\n" if done else body


def asked_for(operation: Operation, *, usage: bool = False, model: str = "the client's") -> GatewayRequest:
    options = {"stream_options": {"include_usage": True}} if usage else {}
    return call({**BASE[operation], "model": model, "stream": True, **options}, operation)


def decode(request: GatewayRequest, pieces: Iterable[bytes]) -> tuple[list[Json], int, Usage | None]:
    """The chunks for the client of a stream that is whole, the outputs and the usage."""
    decoder = LIGHTLLM.stream_decoder(request)
    out: list[bytes] = []
    for piece in pieces:
        out.append(decoder.feed(piece))
        assert not out[-1] or out[-1].endswith(b"\n\n"), "not whole frames"
    out.append(decoder.close())
    assert decoder.finished
    blocks = b"".join(out).split(b"\n\n")
    assert blocks.pop() == b""
    assert all(block.startswith(b"data: {") and b"\n" not in block for block in blocks)
    return [json.loads(block[6:]) for block in blocks], decoder.outputs, decoder.usage


def for_client(chunk: Json, answer_id: str | None, *, tool_calls: bool = False) -> Json:
    """What the client is to read of a chunk."""
    chunk = json.loads(json.dumps({**chunk, "model": "the client's"}))
    if answer_id is not None:
        chunk["id"] = answer_id
    for choice in chunk["choices"]:
        delta = choice.get("delta", {})
        if "reasoning" in delta:
            delta["reasoning_content"] = delta["reasoning"]
        if tool_calls and choice["finish_reason"] == "stop":
            choice["finish_reason"] = "tool_calls"
    return chunk


def expected(case: str, *, usage: bool) -> list[Json]:
    operation, chunks = CHUNKS[case]
    answer_id = "cmpl-r1" if operation == "text_completion" else None
    whole = [*chunks, usage_chunk(operation)] if usage else chunks
    return [for_client(chunk, answer_id, tool_calls=case == "tools") for chunk in whole]


@pytest.mark.parametrize(("spelling", "space", "usage"), [(page, True, True), (ujson, False, False)])
@pytest.mark.parametrize("case", list(CHUNKS))
def test_a_stream_cut_at_every_byte_comes_out_the_same(case: str, spelling: Any, space: bool, usage: bool) -> None:
    operation, chunks = CHUNKS[case]
    body = wire(operation, chunks, spelling, space=space)
    request = asked_for(operation, usage=usage)
    outputs = sum(choice_has_text(chunk) for chunk in chunks)
    whole = (expected(case, usage=usage), outputs, Usage(12, 9, 4))
    assert decode(request, [body]) == whole
    for at in range(1, len(body)):
        assert decode(request, [body[:at], body[at:]]) == whole
    assert decode(request, [body[at : at + 1] for at in range(len(body))]) == whole


def choice_has_text(chunk: Json) -> bool:
    choice: Json = chunk["choices"][0]
    return bool(choice.get("text")) or any(
        choice.get("delta", {}).get(k) for k in ("content", "reasoning", "tool_calls")
    )


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("case", list(CHUNKS))
def test_a_stream_cut_at_random_comes_out_the_same(case: str, seed: int) -> None:
    operation, chunks = CHUNKS[case]
    random = Random(seed)
    body = wire(operation, chunks, random.choice(SPELLINGS)).replace(b"\n", random.choice((b"\n", b"\r\n", b"\r")))
    cuts = sorted(random.sample(range(1, len(body)), 9))
    pieces = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert decode(asked_for(operation, usage=True), pieces)[0] == expected(case, usage=True)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_chat_under_the_engines_name_of_the_model_passes_as_the_engine_wrote_it(spelling: Any) -> None:
    request = asked_for("chat", model=MODEL)
    decoder = LIGHTLLM.stream_decoder(request)
    plain = [chat_chunk({"content": word}) for word in ("one", "two", "three", "four")]
    decoder.feed(wire("chat", [ROLE, *plain], spelling, done=False))
    known = decoder.plain
    assert known is not None, "reads may pass undecoded"
    read = b"data: " + spelling(chat_chunk({"content": "five"})) + b"\n\n"
    assert read.startswith(known.prefix)
    assert read.endswith(known.suffix)
    assert decoder.feed(read) == read
    assert decoder.outputs == 5


def test_counted_ids_become_ours_for_every_chunk_and_the_usage() -> None:
    chunks, _, _ = decode(asked_for("text_completion", usage=True), [wire("text_completion", TEXT_CHUNKS, page)])
    assert {chunk["id"] for chunk in chunks} == {"cmpl-r1"}
    assert chunks[-1]["usage"] == USAGE


@pytest.mark.parametrize("theirs", [176, "176", "", None])
def test_an_id_that_is_none_becomes_ours(theirs: object) -> None:
    chunks = [{**chunk, "id": theirs} for chunk in CHAT_CHUNKS]
    got, _, _ = decode(asked_for("chat"), [wire("chat", chunks, page)])
    assert {chunk["id"] for chunk in got} == {"chatcmpl-r1"}


def test_a_tool_id_that_looks_like_the_answers_stays() -> None:
    tool = {"id": "176", "index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    chunks = [{**c, "id": "176"} for c in (chat_chunk({"tool_calls": [tool]}), chat_chunk({}, "stop"))]
    got, _, _ = decode(asked_for("chat"), [wire("chat", chunks, page)])
    assert got[0]["choices"][0]["delta"]["tool_calls"][0]["id"] == "176"
    assert got[0]["id"] == "chatcmpl-r1"


# --- broken streams


def failure(request: GatewayRequest, body: bytes) -> tuple[bytes, AdapterError]:
    """What came out of a broken stream, and the error; the same however it is cut."""
    results: list[tuple[bytes, AdapterError]] = []
    for pieces in ([body], [body[at : at + 1] for at in range(len(body))]):
        decoder = LIGHTLLM.stream_decoder(request)
        out = b"".join([decoder.feed(piece) for piece in pieces])
        with pytest.raises(AdapterError) as raised:
            out += decoder.close()
        assert not decoder.finished
        results.append((out, raised.value))
    (out, error), (others_out, others_error) = results
    assert (out, type(error), str(error)) == (others_out, type(others_error), str(others_error))
    return out, error


TOO_LONG = "input_len 9000 + max_new_tokens 1 > max_req_total_len 8192"
ABORTED = (
    "1 validation error for ChatCompletionStreamResponseChoice\nfinish_reason\n  Input should be 'stop', 'length' or"
    " 'tool_calls' [type=literal_error, input_value='abort', input_type=str]"
)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        ({"message": TOO_LONG, "type": "invalid_request_error"}, 400, "invalid_request_error", None),
        ({"message": ABORTED, "type": "invalid_request_error"}, 502, "invalid_request_error", None),
        ({"message": "busy", "type": "server_error", "code": "stream_error"}, 502, "server_error", "stream_error"),
        ({"message": "busy", "type": "RateLimitError", "code": 429}, 429, "RateLimitError", "429"),
        ({"message": "busy", "type": "RateLimitError"}, 429, "RateLimitError", None),
        ({"message": "bad", "type": "BadRequestError", "param": "n", "code": 400}, 400, "BadRequestError", "400"),
        ({"message": "none such", "type": "NotFoundError"}, 404, "NotFoundError", None),
        ({"message": "oh", "type": ["odd"], "code": {}}, 502, "['odd']", "{}"),
        ({"type": "invalid_request_error"}, 400, "invalid_request_error", None),
    ],
)
@pytest.mark.parametrize("operation", list(BASE))
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_error_in_a_200_has_the_status_it_stands_for(
    operation: Operation, spelling: Any, error: Json, status: int, kind: str, code: str | None
) -> None:
    out, told = failure(asked_for(operation), b"data: " + spelling({"error": error}) + b"\n\n")
    assert out == b""
    assert isinstance(told, EngineFailed)
    assert (told.status, told.type, told.code) == (status, kind, code)
    assert told.message == error.get("message", "type: invalid_request_error")


def test_an_error_after_some_output_ends_the_stream_without_done() -> None:
    body = wire("chat", CHAT_CHUNKS[:5], page, done=False)
    error = b'data: {"error": {"message": "gone", "type": "server_error", "code": "stream_error"}}\n\n'
    out, told = failure(asked_for("chat", usage=True), body + error + b"data: [DONE]\n\n")
    assert [json.loads(block[6:]) for block in out.split(b"\n\n")[:-1]] == expected("chat", usage=False)[:5]
    assert str(told) == "gone"


@pytest.mark.parametrize("case", list(CHUNKS))
def test_a_stream_without_done_is_cut_wherever_it_ends(case: str) -> None:
    operation, chunks = CHUNKS[case]
    body = wire(operation, chunks, page)
    for at in range(0, len(body) - len(b"data: [DONE]\n\n"), 5):
        decoder = LIGHTLLM.stream_decoder(asked_for(operation))
        decoder.feed(body[:at])
        with pytest.raises(TruncatedStream):
            decoder.close()


def test_done_alone_is_no_answer() -> None:
    for body in (b"data: [DONE]\n\n", wire("chat", CHAT_CHUNKS[:-1], page)):
        assert isinstance(failure(asked_for("chat"), body)[1], TruncatedStream)


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_the_engine_broke_off_is_none(reason: str) -> None:
    body = wire("chat", [*CHAT_CHUNKS[:-1], chat_chunk({}, reason)], page)
    _, told = failure(asked_for("chat"), body)
    assert isinstance(told, EngineFailed)
    assert (told.status, told.code) == (502, reason)


@pytest.mark.parametrize("frame", [b"{", b"nonsense", b"7", b"[]", b'{"choices": 3}', b'"x"'])
def test_nonsense_is_a_malformed_stream(frame: bytes) -> None:
    assert isinstance(failure(asked_for("chat"), b"data: " + frame + b"\n\n")[1], MalformedStream)


def test_json_of_any_shape_raises_only_adapter_errors() -> None:
    random = Random(1)
    odd: list[Any] = [None, 0, True, "", "a", [], {}, [{}], {"a": {}}, 2**70, "\ud800"]
    for operation in BASE:
        for _ in range(400):
            chunk = json.loads(json.dumps(random.choice(CHAT_CHUNKS + TOOL_CHUNKS + TEXT_CHUNKS)))
            target: Json = random.choice([chunk, chunk["choices"][0], chunk["choices"][0].get("delta", chunk)])
            target[random.choice([*target, "error", "usage", "id"])] = random.choice(odd)
            body = json.dumps(chunk).encode()
            decoder = LIGHTLLM.stream_decoder(asked_for(operation))
            decoder.feed(b"data: " + body + b"\n\ndata: [DONE]\n\n")
            with suppress(AdapterError):
                decoder.close()
            reader = LIGHTLLM.answer_reader(asked_for(operation), answer_head(), streamed=False)
            reader.feed(body.replace(b"\\ud800", b"x"))
            with suppress(AdapterError):
                reader.close()


# --- whole answers


def whole(operation: Operation, answer_id: object, **fields: Any) -> Json:
    message = {"role": "assistant", "content": "Hi 🦙", "reasoning": "", "reasoning_content": None, "tool_calls": None}
    choice: Json = {"index": 0, "message": message, "finish_reason": "stop"}
    if operation == "text_completion":
        choice = {"text": "Hi 🦙", "index": 0, "logprobs": None, "finish_reason": "stop"}
    kind = "chat.completion" if operation == "chat" else "text_completion"
    choice.update(fields)
    return {"id": answer_id, "object": kind, "created": 1, "model": MODEL, "choices": [choice], "usage": USAGE}


def read_answer(operation: Operation, body: bytes, model: str = "the client's") -> tuple[Json, Usage | None]:
    reader = LIGHTLLM.answer_reader(asked_for(operation, model=model), answer_head(), streamed=False)
    for at in range(len(body)):
        reader.feed(body[at : at + 1])
    answer = reader.close()
    assert answer.outputs == 1
    return json.loads(answer.body), answer.usage


@pytest.mark.parametrize(
    ("operation", "theirs", "ours"),
    [
        ("chat", "176", "chatcmpl-r1"),
        ("chat", 176, "chatcmpl-r1"),
        ("chat", "", "chatcmpl-r1"),
        ("chat", "chatcmpl-5f0c", "chatcmpl-5f0c"),
        ("text_completion", "176", "cmpl-r1"),
        ("text_completion", "cmpl-1234abcd", "cmpl-1234abcd"),
        ("text_completion", "cmpl-batch-1234abcd", "cmpl-batch-1234abcd"),
    ],
)
@pytest.mark.parametrize("model", ["the client's", MODEL])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_whole_answer_has_an_id_of_its_own(
    operation: Operation, theirs: object, ours: str, model: str, spelling: Any
) -> None:
    sent_answer = whole(operation, theirs)
    answer, usage = read_answer(operation, spelling(sent_answer), model)
    assert answer == {**sent_answer, "id": ours, "model": model}
    assert usage == Usage(12, 9, 4)


def test_reasoning_and_tool_calls_of_a_whole_answer_are_as_in_a_stream() -> None:
    calls = [{"id": "call_a", "index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    message = {"role": "assistant", "content": "", "reasoning": "thoughts", "tool_calls": calls}
    answer, _ = read_answer("chat", page(whole("chat", "176", message=message)))
    assert answer["id"] == "chatcmpl-r1"
    assert answer["choices"][0]["message"]["reasoning_content"] == "thoughts"
    assert answer["choices"][0]["message"]["tool_calls"] == calls
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


def test_an_id_in_the_text_of_an_answer_is_left_alone() -> None:
    text = '{"id": "176"}'
    answer, _ = read_answer("text_completion", page(whole("text_completion", "cmpl-1", text=text)))
    assert answer["choices"][0]["text"] == text


def test_an_answer_that_is_none_is_an_error() -> None:
    for body, kind in (
        (b"", MalformedStream),
        (b"nonsense", MalformedStream),
        (page(whole("chat", "1"))[:-5], MalformedStream),
        (page(whole("chat", "1", finish_reason="abort")), EngineFailed),
    ):
        with pytest.raises(kind):
            read_answer("chat", body)
    with pytest.raises(EngineFailed) as told:
        read_answer("chat", page({"error": {"message": TOO_LONG, "type": "invalid_request_error"}}))
    assert (told.value.status, told.value.message) == (400, TOO_LONG)


# --- error answers


def error_body(message: str, kind: str, code: int) -> bytes:
    return page({"error": {"message": message, "type": kind, "param": None, "code": code}})


DETAIL = page({"detail": [{"type": "float_type", "loc": ["body", "temperature"], "msg": "must be a number"}]})


@pytest.mark.parametrize(
    ("status", "body", "expected_status", "message"),
    [
        (400, error_body(TOO_LONG, "BadRequestError", 400), 400, TOO_LONG),
        (400, page({"message": TOO_LONG}), 400, TOO_LONG),
        (400, error_body(ABORTED.replace("Stream", ""), "BadRequestError", 400), 502, ABORTED.replace("Stream", "")),
        (400, error_body("Failed to parse fc related info to json format!", "BadRequestError", 400), 502, "Failed to"),
        (404, page({"detail": "Not Found"}), 404, "Not Found"),
        (422, DETAIL, 422, "body.temperature: must be a number"),
        (429, error_body("Server is busy", "RateLimitError", 429), 429, "Server is busy"),
        (417, error_body("service in pd mode dont recv reqs", "BadRequestError", 417), 502, "service in pd mode"),
        (417, error_body("'inputs'", "BadRequestError", 417), 400, "'inputs'"),
        (499, b"", 502, "the engine answered 499"),
        (500, b"Internal Server Error", 400, "the engine gave up on the request"),
        (500, b"Internal Server Error\n", 400, "the engine gave up on the request"),
        (500, error_body("Internal Server Error", "InternalServerError", 500), 500, "Internal Server Error"),
        (503, page({"message": "Error"}), 503, "Error"),
        (502, b"<html><body>bad gateway</body></html>", 502, "the engine answered with a web page"),
        (500, b"\xff\xfe", 500, "\ufffd"),
        (500, b"", 500, "the engine answered 500"),
    ],
)
def test_an_error_answer_says_whose_fault_it_is(status: int, body: bytes, expected_status: int, message: str) -> None:
    told = LIGHTLLM.read_error(status, body)
    assert told.status == expected_status
    assert told.message.startswith(message)


def test_a_message_that_only_quotes_such_a_report_is_the_clients_fault() -> None:
    quoted = f"Failed to build prompt: {ABORTED}"
    assert LIGHTLLM.read_error(400, error_body(quoted, "BadRequestError", 400)).status == 400
