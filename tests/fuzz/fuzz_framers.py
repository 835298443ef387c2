"""Fuzzes the framers: ``python tests/fuzz/fuzz_framers.py -runs=100000``. Needs atheris; takes libFuzzer's options.

However the bytes are cut, the framers say what the reference says of the whole body, hold no more than the bound,
and raise nothing but MalformedStream.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["adapters"]):
    from adapters.framing import NdjsonFramer, SseFramer
    from adapters.types import MalformedStream

from tests.adapters import framing_reference as reference
from tests.adapters.framing_reference import Framed


def pieces(data: bytes, body: bytes) -> list[bytes]:
    """Cuts ``body`` into pieces as long as the bytes of ``data`` say, over and over; 0 is an empty read."""
    lengths = list(data) if any(data) else [max(1, len(body))]
    cut: list[bytes] = []
    at = turn = 0
    while at < len(body):
        length = lengths[turn % len(lengths)]
        cut.append(body[at : at + length])
        at += length
        turn += 1
    return cut


def check(framer: SseFramer | NdjsonFramer, reads: list[bytes], expected: Framed, max_frame_bytes: int) -> None:
    got: list[bytes] = []
    try:
        for read in reads:
            got += framer.feed(read)
            assert framer.pending_bytes <= max_frame_bytes, "holds more than the bound"
        got += framer.close()
    except MalformedStream:
        assert expected.too_large, "refused a body that is within the bound"
        assert got == expected.frames[: len(got)], "other frames"
        return
    assert not expected.too_large, "took a body that is above the bound"
    assert got == expected.frames, "other frames"
    assert framer.pending_bytes == 0, "kept something"
    if isinstance(framer, SseFramer):
        assert (framer.comments, framer.stray) == (expected.comments, expected.stray), "other comments or stray line"


def one_input(data: bytes) -> None:
    max_frame_bytes = 1 + data[0] if data else 1
    cuts, body = data[1:5], data[5:]
    if max_frame_bytes > 200:
        max_frame_bytes = 1_000_000
    for reads in ([body], pieces(cuts, body), pieces(b"\x01", body)):
        check(SseFramer(max_frame_bytes), reads, reference.sse(body, max_frame_bytes), max_frame_bytes)
        check(NdjsonFramer(max_frame_bytes), reads, reference.ndjson(body, max_frame_bytes), max_frame_bytes)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
