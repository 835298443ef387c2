"""Fields of one engine in requests to another: passed on as they came, or translated, named or refused by dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters import ADAPTERS
from adapters.bodies import read_object
from adapters.capabilities import capabilities, needed
from adapters.foreign_fields import SHAPES, asks
from adapters.types import GatewayRequest, Operation, Unsupported, UpstreamRequest

Json = dict[str, Any]
PATHS: dict[Operation, str] = {"chat": "/v1/chat/completions", "text_completion": "/v1/completions"}
GENERATES: list[Operation] = ["chat", "text_completion"]
SAMPLING: Json = {
    "typical_p": 0.9,
    "repeat_last_n": 8,
    "min_tokens": 2,
    "min_p": 0.1,
    "top_k": 5,
    "stop_token_ids": [2],
    "ignore_eos": True,
}
"""What tunes the sampling, of single engines."""
generates = pytest.mark.parametrize("operation", GENERATES)
TRANSLATED = ["lightllm", "ollama", "tgi"]
"""Engines whose dialect is not OpenAI's. The others get each field as it came (RW-12)."""
KNOWN: dict[str, set[str]] = {name: set() if name in TRANSLATED else set(SHAPES) for name in ADAPTERS}
"""The fields that shape an answer, by the engines that they are sent to."""


def encode(name: str, operation: Operation, fields: Json) -> UpstreamRequest:
    body: Json = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "prompt": "hi", **fields}
    del body["prompt" if operation == "chat" else "messages"]
    raw = json.dumps(body).encode()
    asked = GatewayRequest("r", operation, PATHS[operation], "POST", "m", False, raw, read_object(raw), 1)
    return ADAPTERS[name].encode(asked, None)


@generates
@pytest.mark.parametrize("name", ADAPTERS)
def test_a_request_is_not_sent_to_an_engine_that_would_refuse_it(operation: Operation, name: str) -> None:
    for field, nothing in SHAPES.items():
        for value in ({"type": "object"}, "x", 0, 1, True, *nothing):
            body: Json = {"model": "m", "messages": [], "prompt": "hi", field: value}
            asked = GatewayRequest("r", operation, PATHS[operation], "POST", "m", False, b"", body, 1)
            able = needed(asked) <= capabilities(name)
            assert able is (field in KNOWN[name] or not asks(value, nothing)), (field, value)


@generates
@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("field", SHAPES)
def test_what_shapes_the_answer_is_passed_to_those_that_know_it_and_refused_for_the_others(
    operation: Operation, name: str, field: str
) -> None:
    value = {"type": "object"} if "json" in field else "x"
    if field in KNOWN[name]:
        upstream = encode(name, operation, {field: value})
        assert json.loads(upstream.body)[field] == value
        assert upstream.dropped == ()
    else:
        with pytest.raises(Unsupported) as refused:
            encode(name, operation, {field: value})
        assert refused.value.param == field
        assert name in refused.value.message


@generates
@pytest.mark.parametrize("name", ADAPTERS)
def test_what_asks_for_nothing_is_refused_by_nobody(operation: Operation, name: str) -> None:
    for field, nothing in SHAPES.items():
        for value in (None, *nothing):
            encode(name, operation, {field: value})


@generates
@pytest.mark.parametrize("name", sorted(ADAPTERS.keys() - TRANSLATED))
def test_who_speaks_openais_dialect_gets_every_field_as_it_came(operation: Operation, name: str) -> None:
    fields: Json = {**SAMPLING, "repetition_penalty": 1.2, "repeat_penalty": 1.2, "zzz": {"a": [1]}}
    upstream = encode(name, operation, fields)
    sent = json.loads(upstream.body)
    assert {key: sent.get(key) for key in fields} == fields
    assert upstream.dropped == ()


@generates
@pytest.mark.parametrize("theirs", ["repetition_penalty", "repeat_penalty"])
def test_the_penalty_of_repetition_arrives_at_lightllm_under_its_own_name(operation: Operation, theirs: str) -> None:
    upstream = encode("lightllm", operation, {theirs: 1.2})
    sent = json.loads(upstream.body)
    assert {key: value for key, value in sent.items() if key.startswith("repe")} == {"repetition_penalty": 1.2}
    assert upstream.dropped == ()


@pytest.mark.parametrize("theirs", ["repetition_penalty", "repeat_penalty"])
def test_tgi_has_the_penalty_of_repetition_in_two_places(theirs: str) -> None:
    chat = json.loads(encode("tgi", "chat", {theirs: 1.5}).body)
    assert (chat["presence_penalty"], theirs in chat, "repetition_penalty" in chat) == (-0.5, False, False)
    text = json.loads(encode("tgi", "text_completion", {theirs: 1.5}).body)
    assert (text["repetition_penalty"], "repeat_penalty" in text) == (1.5, False)


@generates
@pytest.mark.parametrize("name", ["lightllm", "tgi"])
def test_of_two_penalties_the_engines_own_holds_and_the_other_is_named(operation: Operation, name: str) -> None:
    upstream = encode(name, operation, {"repetition_penalty": 1.5, "repeat_penalty": 1.5})
    assert upstream.dropped == ("repeat_penalty",)
    assert "repeat_penalty" not in json.loads(upstream.body)


def test_a_penalty_that_lightllm_cannot_take_is_named_by_the_clients_name() -> None:
    upstream = encode("lightllm", "chat", {"repeat_penalty": 0.5})
    assert upstream.dropped == ("repeat_penalty",)
    assert json.loads(upstream.body).keys() == {"model", "messages"}


@generates
@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("tgi", {"typical_p", "repeat_last_n", "min_tokens", "stop_token_ids", "min_p", "top_k", "ignore_eos"}),
        ("lightllm", {"typical_p", "repeat_last_n", "min_tokens", "stop_token_ids", "min_p"}),
        ("ollama", {"min_tokens", "stop_token_ids", "ignore_eos"}),
    ],
)
def test_what_tunes_the_sampling_of_others_is_left_out_and_named(
    operation: Operation, name: str, lost: set[str]
) -> None:
    upstream = encode(name, operation, SAMPLING)
    assert set(upstream.dropped) == lost
    assert lost.isdisjoint(json.loads(upstream.body))


def test_what_weir_does_not_speak_of_is_passed_on() -> None:
    upstream = ADAPTERS["llamacpp"].encode(
        GatewayRequest("r", "other", "/v1/rerank", "POST", "m", False, b'{"guided_json": {}}', {"guided_json": {}}, 1),
        None,
    )
    assert upstream.body == b'{"guided_json": {}}'


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("field", ["suffix", "regex", "grammar", "ebnf", "guided_regex"])
@pytest.mark.parametrize("text", ["", "x" * 12_000])
def test_a_long_text_in_a_large_body_asks_for_what_a_short_one_does(name: str, field: str, text: str) -> None:
    """Long strings are cut out of what is parsed first."""

    def asked(value: str, prompt: str) -> GatewayRequest:
        body: Json = {"model": "m", "prompt": prompt, field: value}
        raw = json.dumps(body).encode()
        return GatewayRequest(
            "r", "text_completion", PATHS["text_completion"], "POST", "m", False, raw, read_object(raw), 1
        )

    def outcome(call: GatewayRequest) -> tuple[str, bool]:
        try:
            return "taken", field in json.loads(ADAPTERS[name].encode(call, None).body)
        except Unsupported as refusal:
            return refusal.message, False

    large, small = asked(text, "p" * 40_000), asked(text[:1], "p")
    assert needed(large) == needed(small)
    assert outcome(large) == outcome(small)
