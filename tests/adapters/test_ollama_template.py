"""Lines that are rewritten without being parsed come out as if they were.

Fed byte by byte, no read holds a whole line, and every line is parsed: what comes out of that is what has to.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.json_values import read_json
from adapters.ollama import OLLAMA
from adapters.ollama_stream import OllamaStream
from adapters.types import AdapterError, Operation
from tests.adapters.ollama_calls import HI, Json, call, choices, chunks, decoder, deltas, ended, generated, line, said

TEXTS = (
    "a",
    " the",
    "",
    "\n",
    '"',
    'say "',
    "\\",
    "a\\",
    '"},"done":false}',
    "北京",
    "😀",
    "<think>",
    "</think>",
    "*",
    "  ",
)
SPELT = (b"\\u003cthink\\u003e", b"\\u003c/think\\u003e", b"\\ud83d", b"\\u00e9", b"\\/", b'\\"')
CALL: Json = {"function": {"name": "f", "arguments": {"x": 1}}}
TOKEN: Json = {"token": "a", "logprob": -0.5}


def outcome(stream: OllamaStream, *reads: bytes) -> tuple[list[Json], int, Any, Any, str]:
    """What came of a stream, however its texts are spelt: chunks, outputs, tokens, timings, and how it ended."""
    out = b"".join(stream.feed(read) for read in reads)
    end = ""
    try:
        out += stream.close()
    except AdapterError as error:
        end = f"{type(error).__name__}: {error}"
    return chunks(out), stream.outputs, stream.tokens(), stream.timings, end


def parsed(body: bytes, operation: Operation = "chat", **more: Any) -> Any:
    return outcome(streaming(operation, **more), *(body[at : at + 1] for at in range(len(body))))


def streaming(operation: Operation = "chat", **more: Any) -> OllamaStream:
    return OLLAMA.stream_decoder(call({**HI, "stream": True, **more}, operation))


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lines that are parsed from now on."""
    seen: list[bytes] = []

    def read(data: bytes) -> Any:
        seen.append(data)
        return read_json(data)

    monkeypatch.setattr("adapters.ollama_lines.read_json", read)
    return seen


def thought(text: str) -> bytes:
    return said("", thinking=text)


def dated(body: bytes, date: str) -> bytes:
    return body.replace(b"2026-08-21T10:00:00.123456789Z", date.encode())


# --- what is rewritten


def test_lines_that_differ_in_date_and_text_only_are_not_parsed(parses: list[bytes]) -> None:
    stream = decoder()
    stream.feed(said("Once"))
    out = b"".join(
        stream.feed(dated(said(text), date))
        for text, date in ((" upon", "2026-08-21T10:00:01Z"), (" a", "2026-08-21T10:00:01.5Z"), (" time 北😀", "x"))
    )
    assert deltas(out) == [{"content": " upon"}, {"content": " a"}, {"content": " time 北😀"}]
    assert len(parses) == 1
    assert stream.outputs == 4


@pytest.mark.parametrize(
    ("operation", "make", "keys"),
    [
        ("chat", said, ("content",)),
        ("chat", thought, ("reasoning", "reasoning_content")),
        ("text_completion", generated, ("text",)),
    ],
)
def test_many_lines_in_one_read_are_as_many_chunks(
    operation: Operation, make: Callable[[str], bytes], keys: tuple[str, ...], parses: list[bytes]
) -> None:
    stream = decoder(operation=operation)
    stream.feed(make("x"))
    out = stream.feed(make("a") + make("b") + make("c"))
    told = [choice.get("delta", choice) for choice in choices(out)]
    assert [[delta[key] for key in keys] for delta in told] == [[text] * len(keys) for text in "abc"]
    assert len(parses) == 1


def test_an_answer_that_comes_in_one_read_is_learnt_from_at_once(parses: list[bytes]) -> None:
    stream = decoder()
    out = stream.feed(b"".join(said(text) for text in ("a", "b", 'say "', "c", "d")) + ended())
    assert "".join(delta.get("content", "") for delta in deltas(out)) == 'absay "cd'
    assert len(parses) == 3


def test_the_rest_of_a_line_is_not_taken_for_a_line(parses: list[bytes]) -> None:
    stream = decoder()
    plain = said("b")
    stream.feed(said("a") + plain[:-9])
    assert deltas(stream.feed(plain[-9:] + said("c"))) == [{"content": "b"}, {"content": "c"}]
    assert deltas(stream.feed(said("d"))) == [{"content": "d"}]
    assert len(parses) == 2  # the first, and the one that was cut


def test_after_thinking_the_answer_is_rewritten_too(parses: list[bytes]) -> None:
    stream = decoder()
    bodies = [thought(text) for text in "abc"] + [said(text) for text in "def"]
    told = deltas(b"".join(stream.feed(body) for body in bodies))
    assert [delta.get("reasoning", delta.get("content")) for delta in told] == list("abcdef")
    assert len(parses) == 2


def test_nothing_is_rewritten_after_the_end_or_an_error() -> None:
    for end in (ended(), b'{"error":"gone"}\n', b"nonsense\n"):
        stream = decoder()
        stream.feed(said("a") + said("b"))
        stream.feed(end)
        assert stream.feed(said("c")) == b""
        assert stream.outputs == 2


# --- what is parsed


@pytest.mark.parametrize(
    "odd",
    [
        said('a"'),
        said("a\\"),
        said(""),
        said("a", thinking="b"),
        said("a", tool_calls=[CALL]),
        line(message={"role": "assistant", "content": "a"}, logprobs=[TOKEN], done=False),
        line(message={"role": "assistant", "content": "a"}, done=False, error="it broke"),
        line(message={"role": "assistant", "content": "a"}, done=True, done_reason="stop"),
        said("a").replace(b"\n", b"\r\n"),
        said("a").replace(b'":"', b'": "'),
        said("a").replace(b'"content":"a"', b'"content":"a","content":"b"'),
        said("a").replace(b'"content":"a"', b'"content":7'),
        said("a").replace(b'"a"', b'"a\\'),
        said("a")[:-2] + b"\n",
    ],
)
def test_a_line_that_is_otherwise_different_is_parsed(odd: bytes, parses: list[bytes]) -> None:
    stream = decoder()
    stream.feed(said("x") + said("y"))
    parses.clear()
    stream.feed(odd)
    assert parses == [odd.rstrip(b"\r\n")]
    body = said("x") + said("y") + odd + said("z") + ended()
    assert outcome(streaming(), *body.splitlines(keepends=True)) == parsed(body)


def test_thinking_in_the_text_is_told_apart_before_anything_is_rewritten() -> None:
    body = said(" ") + said("<think>") + said("a") + said("b") + said("</think>") + said("c") + said("d") + ended()
    told, *_ = outcome(streaming(), *body.splitlines(keepends=True))
    assert told == parsed(body)[0]
    reasoning = [chunk["choices"][0]["delta"].get("reasoning_content", "") for chunk in told]
    assert "".join(reasoning) == "ab"


def test_logprobs_of_a_text_know_of_the_text_that_had_none() -> None:
    body = generated("one") + generated("two") + generated("x", logprobs=[TOKEN]) + line(done=True)
    told, *_ = outcome(streaming("text_completion", logprobs=1), *body.splitlines(keepends=True))
    assert told[2]["choices"][0]["logprobs"]["text_offset"] == [6]


# --- whatever comes


class Lines:
    """Lines of one stream, most of them plain; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._at = datetime(2026, 8, 21, tzinfo=UTC)

    def body(self, operation: Operation) -> bytes:
        some = self._random
        out = b"".join(self._line(operation) for _ in range(some.randrange(1, 14)))
        return out + some.choice((ended(), ended(), line(response="", done=True), b'{"error":"gone"}\n', b"{\n", b""))

    def _line(self, operation: Operation) -> bytes:
        some = self._random
        text = some.choice(TEXTS)
        if operation == "chat":
            more: Json = {} if some.random() < 0.8 else some.choice(({"thinking": text}, {"tool_calls": [CALL]}))
            made = said("" if "thinking" in more else text, **more)
        else:
            made = generated(text, **({} if some.random() < 0.9 else {"thinking": "t"}))
        if some.random() < 0.15:
            made = made.replace(b'"a"', b'"' + some.choice(SPELT) + b'"')
        if some.random() < 0.05:
            made = made[:-2] + b',"eval_count":3}\n'
        if some.random() < 0.05 and operation == "chat":  # a text has none that were not asked for
            made = made[:-2] + b',"logprobs":[{"token":"a","logprob":-1}]}\n'
        if some.random() < 0.03:
            made = some.choice((b"\n", b"{}\n", made.replace(b"\n", b"\r\n"), made.replace(b":", b": ")))
        self._at += timedelta(microseconds=some.choice((1, 10, 100_000, 1_000_000)))
        return dated(made, self._at.isoformat().replace("+00:00", "Z"))


@pytest.mark.parametrize("operation", ["chat", "text_completion"])
@pytest.mark.parametrize("seed", range(100))
def test_any_stream_comes_out_as_if_each_line_were_parsed(seed: int, operation: Operation) -> None:
    body = Lines(seed).body(operation)
    expected = parsed(body, operation)
    assert outcome(streaming(operation), *body.splitlines(keepends=True)) == expected
    assert outcome(streaming(operation), body) == expected
    half = len(body) // 2
    assert outcome(streaming(operation), body[:half], body[half:]) == expected


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.text(max_size=8), max_size=8), escaped=st.booleans())
def test_any_text_comes_out_as_it_was_said(texts: list[str], escaped: bool) -> None:
    lines = [said("x")] + [said(text) for text in texts]
    if escaped:
        lines = [json.dumps(json.loads(one), separators=(",", ":")).encode() + b"\n" for one in lines]
    stream = decoder()
    out = b"".join(stream.feed(one) for one in lines)
    assert "".join(delta.get("content", "") for delta in deltas(out)) == "x" + "".join(texts)
