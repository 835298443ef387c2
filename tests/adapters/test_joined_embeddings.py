"""Several embedding requests as one: what may be joined, what goes out, and how the answer is told apart."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.bodies import read_object
from adapters.joined_embeddings import CannotSplit, Inputs, join, read_inputs, split
from adapters.types import AdapterError, GatewayRequest
from tests.adapters.recorded import FOLDER

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


def request(body: object) -> GatewayRequest:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return GatewayRequest("id", "embeddings", "/v1/embeddings", "POST", "m", False, raw, read_object(raw), 1)


def inputs(value: object, **fields: object) -> Inputs | None:
    return read_inputs(request({"model": "m", "input": value, **fields}))


def parts(*values: object) -> list[Inputs]:
    found = [inputs(value) for value in values]
    return [part for part in found if part is not None]


def answer(*items: str, rest: str = '"model":"engine","usage":{"prompt_tokens":7,"total_tokens":7}') -> bytes:
    return ('{"object":"list","data":[' + ",".join(items) + "]," + rest + "}").encode()


def item(index: int, vector: str) -> str:
    return f'{{"object":"embedding","index":{index},"embedding":{vector}}}'


@pytest.mark.parametrize(
    ("value", "kind", "tokens"),
    [
        ("a", "text", (1,)),
        ("abcde", "text", (2,)),
        (["ab", "漢字"], "text", (1, 2)),
        ([1, 2, 3], "tokens", (3,)),
        ([[1], [2, 3]], "tokens", (1, 2)),
    ],
)
def test_texts_and_token_ids_may_be_joined(value: object, kind: str, tokens: tuple[int, ...]) -> None:
    found = inputs(value)
    assert found is not None
    assert (found.kind, found.tokens) == (kind, tokens)


@pytest.mark.parametrize(
    "value",
    ["", [], [""], ["a", ""], [[]], [[1], []], ["a", 1], [1, [2]], [1.5], [True], [[True]], [["a"]], {}, None, 7, [{}]],
)
def test_whatever_else_is_left_alone(value: object) -> None:
    assert inputs(value) is None


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"m"}',
        b'{"model":"m","input":"a","seed":12345678901234567890}',
        b'{"model":"m","input":"a","x":' + b"[" * 300 + b"]" * 300 + b"}",
    ],
)
def test_a_body_that_cannot_be_written_again_is_left_alone(raw: bytes) -> None:
    assert read_inputs(request(raw)) is None


def test_the_rest_is_the_same_only_for_the_same_fields() -> None:
    fields: list[dict[str, object]] = [
        {}, {"dimensions": 1}, {"dimensions": 1.0}, {"dimensions": True}, {"dimensions": None}, {"dimensions": "1"},
        {"encoding_format": "float"}, {"encoding_format": "base64"}, {"user": "a"},
    ]  # fmt: skip
    found = [inputs("a", **each) for each in fields]
    assert len({part.rest for part in found if part is not None}) == len(fields)
    a = read_inputs(request(b'{"input":"a","model":"m","x":1}'))
    b = read_inputs(request(b'{"x":1,"model":"m","input":"b"}'))
    assert a is not None
    assert b is not None
    assert a.rest == b.rest


@settings(deadline=None)
@given(st.lists(st.lists(TEXT, min_size=1, max_size=3), min_size=1, max_size=5))
def test_the_joined_body_holds_every_input_in_order_and_the_other_fields(values: list[list[str]]) -> None:
    first = request({"model": "m", "input": values[0], "dimensions": 8})
    joined = join(first, parts(*values), "engine")
    assert json.loads(joined.raw) == {"model": "m", "input": list(chain(*values)), "dimensions": 8} == joined.body


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    used=st.integers(0, 10_000),
    seed=st.randoms(use_true_random=False),
)
def test_each_gets_its_own_in_order_and_the_counts_add_up(sizes: list[int], used: int, seed: Any) -> None:
    asked = parts(*[["x" * seed.randint(1, 40)] * size for size in sizes])
    items = [item(at, f"[{at}.50, -1e-05]") for at in range(sum(sizes))]
    seed.shuffle(items)
    rest = (
        f'"model":"engine","usage":{{"prompt_tokens":{used},"total_tokens":{used},"completion_tokens":0,"more":null}}'
    )
    got = split(answer(*items, rest=rest), asked, "mine")
    assert len(got) == len(sizes)
    at = 0
    for own, size in zip(got, sizes, strict=True):
        read = json.loads(own.body)
        assert read["model"] == "mine"
        assert [each["index"] for each in read["data"]] == list(range(size))
        for _ in range(size):
            assert f"[{at}.50, -1e-05]".encode() in own.body
            at += 1
        assert own.usage is not None
        assert read["usage"]["prompt_tokens"] == read["usage"]["total_tokens"] == own.usage.prompt_tokens
        assert read["usage"]["more"] is None
    assert sum(own.usage.prompt_tokens for own in got if own.usage is not None) == used
    weights = [sum(part.tokens) for part in asked]
    for own, weight in zip(got, weights, strict=True):
        assert own.usage is not None
        assert abs(own.usage.prompt_tokens - used * weight / sum(weights)) < 1


def test_counts_in_details_are_shared_too() -> None:
    usage = '"usage":{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":3}}'
    got = split(answer(item(0, "[1]"), item(1, "[2]"), rest=usage), parts("a", "b"), "m")
    assert [own.usage and own.usage.cached_tokens for own in got] == [1, 2]
    assert "model" not in json.loads(got[0].body)


def test_without_usage_and_indexes_the_order_is_theirs() -> None:
    got = split(b'{"data":[{"embedding":[1]},{"embedding":[2]}]}', parts("a", "b"), "m")
    assert [own.body for own in got] == [b'{"data":[{"embedding":[%d],"index":0}]}' % n for n in (1, 2)]
    assert [own.usage for own in got] == [None, None]


@pytest.mark.parametrize("vector", ['"AAAA/+8="', "[[1,2],[3]]", "[]", '"a\\"b"', "null", "[NaN, 1.0]", '{"x":[1]}'])
def test_any_kind_of_embedding_passes(vector: str) -> None:
    got = split(answer(item(0, vector), item(1, "[2]")), parts("a", "b"), "m")
    assert str(json.loads(got[0].body)["data"][0]["embedding"]) == str(json.loads(vector))
    assert json.loads(got[1].body)["data"][0]["embedding"] == [2]


@pytest.mark.parametrize(
    "body",
    [
        answer(item(0, "[1]")),
        answer(item(0, "[1]"), item(1, "[2]"), item(2, "[3]")),
        answer(item(0, "[1]"), item(0, "[2]")),
        answer(item(1, "[1]"), item(2, "[2]")),
        answer(item(0, "[1]"), '{"embedding":[2]}'),
        answer(item(0, "[1]"), "7"),
        b'{"data":7}',
        b"[]",
        b"nonsense",
        b'{"data":[{"embedding":[1]},{"embedding":"',
        b'{"data":[{"embedding":[1]},{"embedding":[2]}],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_does_not_tell_whose_is_whose_is_refused(body: bytes) -> None:
    with pytest.raises(CannotSplit):
        split(body, parts("a", "b"), "m")


@settings(deadline=None)
@given(st.data())
def test_a_damaged_answer_raises_nothing_else(data: st.DataObject) -> None:
    whole = answer(item(0, "[1]"), item(1, '"AA"'))
    at = data.draw(st.integers(0, len(whole)))
    damaged = whole[:at] + data.draw(st.binary(max_size=3)) + whole[at + data.draw(st.integers(0, 3)) :]
    try:
        got = split(damaged, parts("a", "b"), "m")
    except AdapterError:
        return
    assert len(got) == 2


@pytest.mark.parametrize("engine", ["vllm-embed", "llamacpp-embed"])
def test_a_recorded_answer_keeps_its_numbers_to_the_byte(engine: str) -> None:
    recorded = (FOLDER / engine / "embeddings_batch.res").read_bytes().partition(b"\r\n\r\n")[2]
    got = split(recorded, parts("hello", "red green"), "mine")
    vectors = [b"[" + piece.partition(b"]")[0] + b"]" for piece in recorded.split(b'"embedding":[')[1:]]
    assert len(vectors) == 2
    for own, vector in zip(got, vectors, strict=True):
        assert vector in own.body
        assert json.loads(own.body)["data"][0]["index"] == 0
    before = json.loads(recorded)["usage"]["prompt_tokens"]
    assert sum(own.usage.prompt_tokens for own in got if own.usage is not None) == before
