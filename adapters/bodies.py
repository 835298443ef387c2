"""Request bodies: read what routing needs, change what an engine needs, and let all other bytes pass.

A body is parsed once. All but small ones are parsed as a skeleton, with their long strings cut out: a 25 MB image holds
the event loop for a millisecond and not for fifty, and a prompt of 100 kB costs a third of its parsing. Changes are
spliced into the client's own bytes where that is certain to mean the same; otherwise the body is written anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import count, repeat
from typing import Any

import orjson

from .failures import MalformedStream
from .json_values import as_object, write_json

SKELETON_BYTES = 32_768
_WINDOW_BYTES = 4096
# So many backslashes before a quote are kept with it; a longer run of them is not cut.
_ESCAPES_BYTES = 64
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
# What can stand outside strings in JSON: a window of nothing else may be an array of token ids.
_OUTSIDE_STRINGS = b"0123456789 ,.-+eE[]{}:\n\r\ttrufalsn"
_MODEL = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*("(?:[^"\\]|\\.)*")')


class BadBody(ValueError):
    """The body is no JSON object; the message says why."""


def read_object(raw: bytes) -> dict[str, Any]:
    """Parses a request body. Above ``SKELETON_BYTES`` strings longer than 4 to 8 KiB come out shortened.

    Raises:
        BadBody: Not JSON, or not an object.
    """
    try:
        value: Any = orjson.loads(raw if len(raw) <= SKELETON_BYTES else skeleton(raw))
    except orjson.JSONDecodeError as error:
        raise BadBody(
            f"the request body is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from error
    if value.__class__ is not dict:
        raise BadBody("the request body must be a JSON object")
    return value


def read_whole(raw: bytes) -> dict[str, Any]:
    """Parses a body that ``read_object`` took, with its long strings and exact numbers.

    Raises:
        BadBody: Not JSON, in a part that ``read_object`` did not look at.
    """
    try:
        # orjson reads whole numbers above 64 bits as floats
        whole = as_object(json.loads(raw) if _LONG_NUMBER.search(raw) else orjson.loads(raw))
    except (ValueError, RecursionError) as error:
        raise BadBody("the request body is not valid JSON") from error
    return whole or {}


def with_texts(raw: bytes, body: Mapping[str, Any], fields: Iterable[str]) -> Mapping[str, Any]:
    """Returns a body that ``read_object`` took; whole if the text of one of these fields may have been cut out.

    Raises:
        BadBody: As for ``read_whole``.
    """
    if len(raw) > SKELETON_BYTES and any(body.get(field) == "" for field in fields):
        return read_whole(raw)
    return body


def skeleton(raw: bytes) -> bytes:
    """Returns the same JSON with the inside of long strings cut out.

    A window without a quote lies inside one string, or outside all strings. In valid JSON the latter holds nothing but
    numbers, literals and punctuation, so any other byte in it tells a string; the text between the quotes on both sides
    (escaped ones included) can go without changing what stands around it.
    """
    starts, ends = range(0, len(raw) - _WINDOW_BYTES + 1, _WINDOW_BYTES), count(_WINDOW_BYTES, _WINDOW_BYTES)
    if -1 not in map(raw.rfind, repeat(b'"'), starts, ends):
        return raw  # prose with quotes in it: most long prompts
    parts: list[bytes] = []
    kept = 0
    at = 0
    while at + _WINDOW_BYTES <= len(raw):
        upto = at + _WINDOW_BYTES
        quote = raw.rfind(b'"', at, upto)
        if quote >= 0 or not raw[at:upto].translate(None, _OUTSIDE_STRINGS):
            at = upto
            continue
        start = raw.rfind(b'"', 0, at) + 1
        quote = raw.find(b'"', upto)
        if start == 0 or quote < 0:
            break  # not JSON: the parser will say so
        before = raw[quote - _ESCAPES_BYTES : quote]
        end = quote - len(before) + len(before.rstrip(b"\\"))  # the backslashes before the quote belong to it
        if end > quote - len(before):
            parts.append(raw[kept:start])
            kept = end
        at = quote + 1
    parts.append(raw[kept:])
    return b"".join(parts)


def edit(
    raw: bytes,
    body: Mapping[str, Any],
    *,
    model: str | None = None,
    add: Mapping[str, Any] | None = None,
    drop: Iterable[str] = (),
) -> bytes:
    """Returns the body with another model name, further top-level fields, or without some.

    Args:
        raw: The client's bytes.
        body: The same, as ``read_object`` gave it.
        model: The name to put in place of ``body["model"]``, if there is one; None leaves it.
        add: Fields to set. A field that is already there is replaced.
        drop: Fields to leave out.

    Raises:
        BadBody: Not JSON, in a part that ``read_object`` did not look at.
    """
    add = add or {}
    gone = [key for key in drop if key in body]
    rename = model is not None and "model" in body and model != body["model"]
    if not (add or gone or rename):
        return raw
    if not gone and not any(key in body for key in add):
        spliced = _splice_model(raw, body, model) if rename and model is not None else raw
        if spliced is not None:
            return _append(spliced, add) if add else spliced
    whole = read_whole(raw)
    for key in gone:
        whole.pop(key, None)  # the skeleton may have shortened a long one
    whole.update(add)
    if rename:
        whole["model"] = model
    try:
        return write_json(whole, b"")
    except MalformedStream as error:
        raise BadBody("the request body is nested too deeply") from error


def _splice_model(raw: bytes, body: Mapping[str, Any], model: str) -> bytes | None:
    """None unless one `"model"`, in any spelling, is all the body holds, so that it is certain to be the right one."""
    if raw.count(b'"model"') != 1 or b"\\u00" in raw:
        return None
    found = _MODEL.search(raw)
    if found is None or orjson.loads(found[1]) != body.get("model"):
        return None
    return raw[: found.start(1)] + orjson.dumps(model) + raw[found.end(1) :]


def _append(raw: bytes, add: Mapping[str, Any]) -> bytes:
    end = raw.rindex(b"}")
    comma = b"" if raw[:end].rstrip().endswith(b"{") else b","
    return b"%b%b%b}" % (raw[:end], comma, orjson.dumps(add)[1:-1])
