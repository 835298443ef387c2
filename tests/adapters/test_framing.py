"""Framers: hand-written cases, and the same frames however the network cuts the bytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from itertools import pairwise
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.framing import MAX_STRAY_BYTES, NdjsonFramer, SseFramer
from adapters.types import MalformedStream
from tests.adapters import framing_reference as reference
from tests.adapters.recorded import Recording, recordings

STREAMS = [r for r in recordings() if "event-stream" in r.content_type and r.body]

# Pieces of which streams, good and bad, are made; small, so that hypothesis finds odd neighbours soon.
TOKENS = [
    b"data: ", b"data:", b"data", b"event: x", b"id: 7", b"retry: 3000", b": ping", b":", b" ", b"\n", b"\n\n", b"\r",
    b"\r\n", b"\r\n\r\n", b"\r\r", b'{"a":1}', b"[DONE]", b'{"error":{"message":"no"}}', "é😀".encode(),
    b"\xef\xbb\xbf", b"\xff", b"\x00", b"datax: 1", b"Data: 1", b'data: {"content":"a"}\n\n',
]  # fmt: skip
BODIES = st.lists(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=4)), max_size=30).map(b"".join)
CUTS = st.lists(st.integers(0, 200), max_size=12)


class Framer(Protocol):
    def feed(self, data: bytes) -> list[bytes]: ...

    def close(self) -> list[bytes]: ...


def cut(body: bytes, cuts: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(min(c, len(body)) for c in cuts), len(body)]
    return [body[a:b] for a, b in pairwise(edges)]


def frames(framer: Framer, pieces: Iterable[bytes]) -> list[bytes]:
    return [*(frame for piece in pieces for frame in framer.feed(piece)), *framer.close()]


def frames_until_refused(framer: Framer, pieces: Iterable[bytes]) -> tuple[list[bytes], bool]:
    got: list[bytes] = []
    try:
        for piece in pieces:
            got += framer.feed(piece)
        got += framer.close()
    except MalformedStream:
        return got, True
    return got, False


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b"data: a\n\ndata: b\n\n", [b"a", b"b"], id="events"),
        pytest.param(b"data:a\n\n", [b"a"], id="no space after the colon"),
        pytest.param(b"data:  a\n\n", [b" a"], id="only one space is taken"),
        pytest.param(b"data: a\ndata: b\n\n", [b"a\nb"], id="two data lines"),
        pytest.param(b"data: a\ndata\ndata:\n\n", [b"a\n\n"], id="data lines without a value"),
        pytest.param(b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"], id="CRLF"),
        pytest.param(b"data: a\r\rdata: b\r\r", [b"a", b"b"], id="CR"),
        pytest.param(b"data: a\r\ndata: b\rdata: c\n\r\n", [b"a\nb\nc"], id="all three line ends"),
        pytest.param(b"data: a\n\rdata: b\n\n", [b"a", b"b"], id="LF CR is two line ends"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [b"a"], id="byte order mark"),
        pytest.param(b"data: \xef\xbb\xbfa\n\n", [b"\xef\xbb\xbfa"], id="byte order mark in data"),
        pytest.param(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", [], id="two byte order marks spoil the field"),
        pytest.param(b"event: x\nid: 7\nretry: 3000\ndata: a\n\n", [b"a"], id="other fields"),
        pytest.param(b"id: 7\n\nevent: x\n\n", [], id="events without data"),
        pytest.param(b"data:\n\ndata\n\ndata: \n\n", [], id="events with empty data"),
        pytest.param(b": ping\n\n:\n\ndata: a\n: ping\ndata: b\n\n", [b"a\nb"], id="comments"),
        pytest.param(b"\n\n\n\ndata: a\n\n\n\n\n", [b"a"], id="many blank lines"),
        pytest.param(b"data: a\n", [b"a"], id="no blank line at the end"),
        pytest.param(b"data: a\n\ndata: b", [b"a", b"b"], id="no line end at the end"),
        pytest.param(b"data: a\n\ndat", [b"a"], id="half a field name at the end"),
        pytest.param(b"data: a:b: c\n\n", [b"a:b: c"], id="colons in data"),
        pytest.param(b"data: a\xe2\x80\xa8\xc2\x85\x0b\x0c\n\n", [b"a\xe2\x80\xa8\xc2\x85\x0b\x0c"], id="no other"),
        pytest.param("data: 北京😀é\n\n".encode(), ["北京😀é".encode()], id="characters of many bytes"),
        pytest.param(b"Data: a\n\n data: b\n\ndata : c\n\n", [], id="names are taken to the letter"),
        pytest.param(b"", [], id="nothing"),
    ],
)  # fmt: skip
def test_sse_frames_are_the_data_of_events(body: bytes, expected: list[bytes]) -> None:
    assert frames(SseFramer(), [body]) == expected
    assert frames(SseFramer(), (body[i : i + 1] for i in range(len(body)))) == expected
    assert reference.sse(body, 1_000).frames == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}'], id="lines"),
        pytest.param(b'{"a":1}\r\n{"b":2}\r\n', [b'{"a":1}', b'{"b":2}'], id="CRLF"),
        pytest.param(b'\n\r\n{"a":1}\n\n', [b'{"a":1}'], id="empty lines"),
        pytest.param(b'{"a":1}\n{"b":', [b'{"a":1}', b'{"b":'], id="no line end at the end"),
        pytest.param(b'{"a":1}\r', [b'{"a":1}'], id="half a line end at the end"),
        pytest.param('{"a":"北京😀"}\n'.encode(), ['{"a":"北京😀"}'.encode()], id="characters of many bytes"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_ndjson_frames_are_lines(body: bytes, expected: list[bytes]) -> None:
    assert frames(NdjsonFramer(), [body]) == expected
    assert frames(NdjsonFramer(), (body[i : i + 1] for i in range(len(body)))) == expected
    assert reference.ndjson(body, 1_000).frames == expected


def test_a_frame_comes_out_with_the_byte_that_completes_it() -> None:
    framer = SseFramer()
    assert [framer.feed(bytes([byte])) for byte in b"data: a\n\n"] == [[]] * 8 + [[b"a"]]
    assert framer.feed(b"data: b\r\n") == []
    assert framer.feed(b"\r") == [b"b"]  # its LF may never come
    assert framer.feed(b"\ndata: c\n\n") == [b"c"]
    lines = NdjsonFramer()
    assert [lines.feed(bytes([byte])) for byte in b"{}\r\n"] == [[], [], [], [b"{}"]]


def test_an_empty_read_between_cr_and_lf_changes_nothing() -> None:
    framer = SseFramer()
    assert frames(framer, [b"data: a\r", b"", b"\ndata: b\r", b"", b"\n"]) == [b"a\nb"]


def test_a_frame_is_never_given_twice() -> None:
    framer = SseFramer()
    assert framer.feed(b"data: a\n\n") == [b"a"]
    assert framer.close() == []
    assert framer.feed(b"data: b") == []
    assert framer.close() == [b"b"]
    assert framer.close() == []


def test_pending_bytes_are_those_of_the_open_event_and_line() -> None:
    framer = SseFramer()
    framer.feed(b"data: abc")
    assert framer.pending_bytes == len(b"data: abc")
    framer.feed(b"\n")
    assert framer.pending_bytes == len(b"abc\n")
    framer.feed(b": comment\n")
    assert framer.pending_bytes == len(b"abc\n")
    framer.feed(b"\n")
    assert framer.pending_bytes == 0
    lines = NdjsonFramer()
    lines.feed(b"{}\n{")
    assert lines.pending_bytes == 1


def test_comments_are_counted() -> None:
    framer = SseFramer()
    framer.feed(b": keep-alive\n\n:\n\ndata: a\n\n:")
    assert framer.comments == 2
    framer.close()
    assert framer.comments == 3


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n\n"])
def test_a_bare_line_is_kept_as_stray(end: bytes) -> None:
    line = b'{"error":{"message":"ctx too long","code":400}}'
    framer = SseFramer()
    assert frames(framer, cut(b"data: a\n\n<html>\n" + line + end, [12, 30])) == [b"a"]
    assert framer.stray == line


def test_a_stray_line_is_bounded() -> None:
    framer = SseFramer()
    framer.feed(b"x" * (2 * MAX_STRAY_BYTES) + b"\n")
    assert framer.stray == b"x" * MAX_STRAY_BYTES


def test_known_fields_and_comments_are_not_stray() -> None:
    framer = SseFramer()
    frames(framer, [b"event: x\nid\nretry: 1\n: c\ndata: a\n\n"])
    assert framer.stray == b""


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"data: " + b"x" * 95, id="an open line"),
        pytest.param(b"data: " + b"x" * 95 + b"\n\n", id="a whole event"),
        pytest.param(b"data: 1234567890\n" * 10, id="an event of many lines"),
        pytest.param(b"data:\n" * 101, id="an event of many empty lines"),
        pytest.param(b":" + b"x" * 100, id="a comment"),
        pytest.param(b"data: a\n\n" + b"data: " + b"x" * 95 + b"\n\n", id="a whole event after another"),
    ],
)
def test_an_event_above_the_bound_is_refused(body: bytes) -> None:
    for pieces in ([body], [body[i : i + 1] for i in range(len(body))]):
        framer = SseFramer(max_frame_bytes=100)
        with pytest.raises(MalformedStream, match="larger than 100 bytes"):
            frames(framer, pieces)


def test_an_event_at_the_bound_is_no_reason_to_refuse_a_long_body() -> None:
    event = b"data: " + b"x" * 94 + b"\n\n"
    assert frames(SseFramer(max_frame_bytes=100), [event * 50]) == [b"x" * 94] * 50


def test_a_line_above_the_bound_is_refused() -> None:
    assert frames(NdjsonFramer(max_frame_bytes=100), [(b"x" * 100 + b"\n") * 50]) == [b"x" * 100] * 50
    for body in (b"x" * 101, b"x" * 101 + b"\n"):
        with pytest.raises(MalformedStream, match="larger than 100 bytes"):
            NdjsonFramer(max_frame_bytes=100).feed(body)


@pytest.mark.parametrize(
    ("framer", "start", "end"),
    [
        pytest.param(SseFramer(), b"data: ", b"\n\n", id="sse, one line"),
        pytest.param(NdjsonFramer(), b"", b"\n", id="ndjson"),
    ],
)
def test_a_huge_frame_in_tiny_reads_needs_little_more_memory_than_its_size(
    framer: Framer, start: bytes, end: bytes
) -> None:
    size_bytes = 256 * 1024
    framer.feed(start)
    tracemalloc.start()
    try:
        for _ in range(size_bytes // 4):
            framer.feed(b"abcd")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert framer.feed(end) == [b"abcd" * (size_bytes // 4)]
    assert peak_bytes < 3 * size_bytes


@given(body=BODIES, cuts=CUTS)
def test_sse_frames_do_not_depend_on_the_cuts(body: bytes, cuts: list[int]) -> None:
    expected = reference.sse(body, 1_000)
    for pieces in ([body], cut(body, cuts), cut(body, range(len(body)))):
        framer = SseFramer()
        assert frames(framer, pieces) == expected.frames
        assert (framer.comments, framer.stray, framer.pending_bytes) == (expected.comments, expected.stray, 0)


@given(body=BODIES, cuts=CUTS)
def test_ndjson_frames_do_not_depend_on_the_cuts(body: bytes, cuts: list[int]) -> None:
    expected = reference.ndjson(body, 1_000).frames
    for pieces in ([body], cut(body, cuts), cut(body, range(len(body)))):
        assert frames(NdjsonFramer(), pieces) == expected


@given(body=BODIES, cuts=CUTS, max_frame_bytes=st.integers(1, 40))
def test_whether_a_body_is_refused_does_not_depend_on_the_cuts(
    body: bytes, cuts: list[int], max_frame_bytes: int
) -> None:
    for framer, expected in (
        (SseFramer(max_frame_bytes), reference.sse(body, max_frame_bytes)),
        (NdjsonFramer(max_frame_bytes), reference.ndjson(body, max_frame_bytes)),
    ):
        got, refused = frames_until_refused(framer, cut(body, cuts))
        assert refused == expected.too_large
        assert got == expected.frames[: len(got)]
        assert refused or len(got) == len(expected.frames)


@given(body=BODIES, cuts=CUTS)
def test_bytes_pending_never_pass_the_bound(body: bytes, cuts: list[int]) -> None:
    framer = SseFramer(max_frame_bytes=20)
    try:
        for piece in cut(body, cuts):
            framer.feed(piece)
            assert framer.pending_bytes <= 20
    except MalformedStream:
        pass


@pytest.mark.parametrize("recording", STREAMS, ids=[r.id for r in STREAMS])
def test_recorded_streams_frame_the_same_in_any_spelling(recording: Recording) -> None:
    body = recording.body
    expected = reference.sse(body, 1_000_000).frames
    assert frames(SseFramer(), [body]) == expected
    for end in (b"\r\n", b"\r"):
        spelled = b"\xef\xbb\xbf" + body.replace(b"\n", end)
        assert frames(SseFramer(), [spelled]) == expected
        assert frames(SseFramer(), cut(spelled, range(0, len(spelled), 7))) == expected
