"""Answers of embeddings so large that only their ends are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.openai_answer import EmbeddingsAnswer
from adapters.types import Answer, MalformedStream, Usage

DATA = [{"object": "embedding", "index": 0, "embedding": [0.12345] * 60_000}]
USAGE = {"prompt_tokens": 3, "total_tokens": 3}


def read(body: bytes) -> Answer:
    reader = EmbeddingsAnswer("the client's")
    reader.feed(body)
    return reader.close()


@pytest.mark.parametrize("named", ["engine/bge", "model", "usage", 'a "quoted" one', "\\", "é"])
@pytest.mark.parametrize("order", [("object", "model", "data", "usage"), ("usage", "object", "data", "model")])
def test_whatever_the_engine_calls_its_model_only_that_name_is_replaced(named: str, order: tuple[str, ...]) -> None:
    fields: dict[str, Any] = {"object": "list", "data": DATA, "model": named, "usage": USAGE}
    answer = read(json.dumps({key: fields[key] for key in order}).encode())
    assert json.loads(answer.body) == {**fields, "model": "the client's"}
    assert answer.usage == Usage(3, 0)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>" + b"x" * 300_000,
        b"[" + b"1," * 200_000 + b"1]",
        json.dumps({"object": "list", "data": DATA}).encode()[:-1],
        json.dumps({"object": "list", "embeddings": DATA}).encode(),
    ],
    ids=["page", "list", "cut", "no-data"],
)
def test_what_is_no_answer_of_embeddings_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedStream):
        read(body)


def test_usage_that_cannot_be_read_is_none() -> None:
    body = json.dumps({"object": "list", "data": DATA, "usage": {"note": "a brace } in a text"}}).encode()
    answer = read(body)
    assert answer.usage is None
    assert answer.body == body
