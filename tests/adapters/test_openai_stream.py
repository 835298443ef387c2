"""What the byte templates of ``OpenAiStream`` must not let pass."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.openai_stream import OpenAiStream
from adapters.said import Said

TEXTS = ("a", "", '"', "\\", '\\"', "\n\n", "é", "data: ", '"}, "finish_reason": null}]}', "a longer piece of text")


def plain(text: str, *, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}
    return b"data: " + json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode() + b"\n\n"


def read_by(model: str, reads: list[bytes]) -> tuple[bytes, int, list[str] | None, bool]:
    """Returns what goes to the client, how many outputs were counted, what was kept of them, and whether it ended."""
    decoder = OpenAiStream(model, wants_usage=False)
    said = decoder.said = Said()
    out = b"".join([decoder.feed(read) for read in reads])
    return out + decoder.close(), decoder.outputs, said.pieces(), decoder.finished


@pytest.mark.parametrize("model", ["m", "another"])
@given(
    texts=st.lists(st.sampled_from(TEXTS), min_size=1, max_size=8),
    cuts=st.lists(st.floats(0, 1), max_size=3),
)
def test_however_many_chunks_come_in_a_read_they_are_read_alike(
    model: str, texts: list[str], cuts: list[float]
) -> None:
    events = [plain("begin"), *map(plain, texts), plain("", finish_reason="stop"), b"data: [DONE]\n\n"]
    stream = b"".join(events)
    singly = read_by(model, events)
    assert singly[0] == b"".join(events[:-1]).replace(b'"model": "m"', b'"model": "%b"' % model.encode())
    assert singly[1] == 1 + sum(text != "" for text in texts)
    assert singly[3]
    assert read_by(model, [stream]) == singly
    at = sorted({0, len(stream), *[int(cut * len(stream)) for cut in cuts]})
    assert read_by(model, [stream[start:end] for start, end in pairwise(at)]) == singly


def test_a_read_that_looks_plain_behind_an_open_line_is_the_rest_of_that_line() -> None:
    decoder = OpenAiStream("m", wants_usage=False)
    assert decoder.feed(plain("a") + plain("b")) == plain("a") + plain("b")
    assert decoder.plain is not None
    assert decoder.feed(b": a comment that goes on, ") == b""
    assert decoder.plain is None
    assert decoder.feed(plain("c")) == b"", "it is what the comment says"
    assert decoder.outputs == 2
    assert decoder.feed(plain("d")) == plain("d")
