"""Several embedding requests as one, and its answer as theirs.

In: ``{"model", "input": "a"}`` and ``{"model", "input": ["b", "c"]}`` become ``{"model", "input": ["a", "b", "c"]}``.
Out: each gets its items of ``data``, numbered anew, and its share of ``usage``. The numbers of an embedding, or its
base64, pass as the engine wrote them: they are cut out before the answer is parsed, and put in again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple

import orjson

from .json_values import Json, as_list, as_object, objects, read_json_object, write_json
from .openai_shape import read_usage
from .types import BYTES_PER_TOKEN, AdapterError, Answer, GatewayRequest, MalformedStream

Kind = Literal["text", "tokens"]

# orjson reads whole numbers above 64 bits as floats: written again, they would be others
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_EMBEDDING = re.compile(rb'"embedding"\s*:\s*([\["])')


class Inputs(NamedTuple):
    """What one request wants to have embedded, and how.

    Attributes:
        kind: Texts or lists of token ids.
        items: The inputs.
        tokens: Of each input, estimated; at least 1.
        rest: All other fields, model included: the same bytes if and only if the fields are the same.
    """

    kind: Kind
    items: list[Any]
    tokens: tuple[int, ...]
    rest: bytes


class CannotSplit(AdapterError):
    """The answer does not tell which item of it belongs to which input."""


def read_inputs(request: GatewayRequest) -> Inputs | None:
    """Returns what an embeddings request asks for; None if it is better left as it is.

    That is so for whatever is no text and no list of token ids, for empty inputs, which some engines refuse, and for a
    body that could not be written again as it was.
    """
    found = _items(request.body.get("input"))
    if found is None or _LONG_NUMBER.search(request.raw) is not None:
        return None
    kind, items = found
    if kind == "text":
        tokens = tuple([-(-len(text.encode()) // BYTES_PER_TOKEN) for text in items])
    else:
        tokens = tuple([len(ids) for ids in items])
    fields = {key: value for key, value in request.body.items() if key != "input"}
    try:
        rest = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # nested deeper than it writes
        return None
    return Inputs(kind, items, tokens, rest)


def join(first: GatewayRequest, parts: Sequence[Inputs], model: str) -> GatewayRequest:
    """Returns one request for the inputs of several, whose ``rest`` and ``kind`` are the same.

    Args:
        first: One of them.
        parts: What each asks for.
        model: The engine's own name of the model. The answer may keep it, for ``split`` sets the client's.
    """
    body = {**first.body, "input": [item for part in parts for item in part.items]}
    return first._replace(model=model, raw=orjson.dumps(body), body=body)


def split(answer: bytes, parts: Sequence[Inputs], model: str, engine_model: Any = None) -> list[Answer]:
    """Returns each request's answer, in the order of ``parts``.

    Args:
        answer: To the joined request, in OpenAI's shape.
        parts: What each asked for.
        model: The name that the clients asked for.
        engine_model: As in ``Answer.model``.

    Raises:
        CannotSplit: There is not one item for each input.
    """
    whole, vectors, skeleton = _read(answer)
    items = _in_order(whole.get("data"), sum(len(part.items) for part in parts))
    usages = _shares_of_usage(as_object(whole.get("usage")), [sum(part.tokens) for part in parts])
    named = {"model": model} if "model" in whole else {}
    answers: list[Answer] = []
    ends = accumulate((len(part.items) for part in parts), initial=0)
    for (start, end), usage in zip(pairwise(ends), usages, strict=True):
        data = b",".join(
            _written({**items[at], "index": at - start}, _vector(items[at], vectors), skeleton)
            for at in range(start, end)
        )
        fields = {**whole, **named} if usage is None else {**whole, **named, "usage": usage}
        body = _written(fields, {"data": b"[%b]" % data}, skeleton)
        answers.append(Answer(body, read_usage(usage), 1, None, whole, engine_model))
    return answers


def _items(value: Any) -> tuple[Kind, list[Any]] | None:
    items: list[Any] | None = [value] if isinstance(value, str) else as_list(value)
    if not items:
        return None
    kinds = set(map(type, items))
    if kinds == {str}:
        return ("text", items) if all(items) else None
    if kinds == {int}:
        return "tokens", [items]
    if kinds == {list} and all(set(map(type, ids)) == {int} for ids in items):
        return "tokens", items
    return None


def _read(answer: bytes) -> tuple[Json, list[bytes], bytes]:
    """Returns the answer parsed with a number in place of each embedding, the embeddings, and what was parsed.

    With the embeddings where they were, and none beside, if they are not one plain array or string for each item.
    """
    vectors, skeleton = _cut(answer)
    whole = _parsed(skeleton)
    data = objects(whole.get("data"))
    if [item.get("embedding") for item in data] == list(range(len(vectors))):
        return whole, vectors, skeleton
    return _parsed(answer), [], answer


def _cut(answer: bytes) -> tuple[list[bytes], bytes]:
    vectors: list[bytes] = []
    parts: list[bytes] = []
    kept = 0
    while (found := _EMBEDDING.search(answer, kept)) is not None:
        start = found.start(1)
        close = answer.find(b"]" if found[1] == b"[" else b'"', start + 1)
        vector = answer[start : close + 1]
        if close < 0 or b"\\" in vector or vector.count(b"[") > 1:
            break  # no plain one: they are all left where they are
        parts += (answer[kept:start], b"%d" % len(vectors))
        vectors.append(vector)
        kept = close + 1
    parts.append(answer[kept:])
    return vectors, b"".join(parts)


def _parsed(answer: bytes) -> Json:
    whole = read_json_object(answer)
    if whole is None:
        raise CannotSplit("the engine's answer is not a JSON object")
    return whole


def _in_order(data: Any, count: int) -> list[Json]:
    """The items by their index; where none has one, as they came."""
    items = objects(data)
    if len(items) != count:
        raise CannotSplit(f"the engine gave {len(items)} embeddings for {count} inputs")
    indexes = [item.get("index") for item in items]
    if all(index is None for index in indexes):
        return items
    by_index = {index: item for index, item in zip(indexes, items, strict=True) if type(index) is int}
    if by_index.keys() != set(range(count)):
        raise CannotSplit("the indexes of the engine's embeddings are not those of the inputs")
    return [by_index[at] for at in range(count)]


def _vector(item: Json, vectors: list[bytes]) -> dict[str, bytes]:
    return {"embedding": vectors[item["embedding"]]} if vectors else {}


def _written(fields: Json, ready: Mapping[str, bytes], source: bytes) -> bytes:
    """Writes an object of which some values are JSON already."""
    try:
        return b"{%b}" % b",".join(
            write_json(key, b"") + b":" + (ready[key] if key in ready else write_json(value, source))
            for key, value in fields.items()
        )
    except MalformedStream as error:
        raise CannotSplit("the engine's answer is nested too deeply") from error


def _shares_of_usage(usage: Json | None, weights: Sequence[int]) -> list[Json] | list[None]:
    """Shares every count of ``usage`` out, those of its details too; everything else stays as it is."""
    if usage is None:
        return [None for _ in weights]
    shares: list[Json] = [dict(usage) for _ in weights]
    for key, value in usage.items():
        if (details := as_object(value)) is not None:
            of_details = [{**details} for _ in weights]
            for name, count in details.items():
                _share(of_details, name, count, weights)
            for share, own in zip(shares, of_details, strict=True):
                share[key] = own
        else:
            _share(shares, key, value, weights)
    return shares


def _share(shares: Sequence[Json], key: str, count: Any, weights: Sequence[int]) -> None:
    """Cuts a whole at the same points as the sum of the weights: no share is off by one, and their sum is exact."""
    if type(count) is not int:
        return
    total = sum(weights)
    edges = [count * reached // total for reached in accumulate(weights, initial=0)]
    for share, (start, end) in zip(shares, pairwise(edges), strict=True):
        share[key] = end - start
