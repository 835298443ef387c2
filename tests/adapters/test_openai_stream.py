"""What the byte templates of ``OpenAiStream`` must not let pass."""

from __future__ import annotations

import json

from adapters.openai_stream import OpenAiStream


def plain(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return b"data: " + json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode() + b"\n\n"


def test_a_read_that_looks_plain_behind_an_open_line_is_the_rest_of_that_line() -> None:
    decoder = OpenAiStream("m", wants_usage=False)
    assert decoder.feed(plain("a") + plain("b")) == plain("a") + plain("b")
    assert decoder.plain is not None
    assert decoder.feed(b": a comment that goes on, ") == b""
    assert decoder.plain is None
    assert decoder.feed(plain("c")) == b"", "it is what the comment says"
    assert decoder.outputs == 2
    assert decoder.feed(plain("d")) == plain("d")
