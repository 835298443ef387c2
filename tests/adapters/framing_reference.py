"""What the framers should say of a whole body: the rules once more, written down without regard to reads or time.

SSE after the WHATWG's "Server-sent events", sections 9.2.5 (grammar) and 9.2.6 (interpretation), but for three
things that are Weir's: an event that the end of the body cuts off is kept, an event with empty data is not, and
there is a bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(slots=True)
class Framed:
    """What a body holds. ``too_large`` means that the framer refuses it after the frames in ``frames``, or sooner."""

    frames: list[bytes] = field(default_factory=list[bytes])
    comments: int = 0
    stray: bytes = b""
    too_large: bool = False


def sse(body: bytes, max_frame_bytes: int) -> Framed:
    framed, event = Framed(), b""
    for number, line in enumerate([*re.split(rb"\r\n|\n|\r", body), b""]):
        if len(event) + len(line) > max_frame_bytes:
            framed.too_large = True
            return framed
        if number == 0 and line.startswith("\N{BYTE ORDER MARK}".encode()):
            line = line[3:]
        if line == b"":
            if event not in (b"", b"\n"):
                framed.frames.append(event[:-1])
            event = b""
            continue
        colon = line.find(b":")
        name, value = (line, b"") if colon < 0 else (line[:colon], line[colon + 1 :])
        if colon == 0:
            framed.comments += 1
        elif name == b"data":
            event += (value[1:] if value[:1] == b" " else value) + b"\n"
        elif name not in (b"event", b"id", b"retry"):
            framed.stray = line[: 64 * 1024]
    return framed


def ndjson(body: bytes, max_frame_bytes: int) -> Framed:
    framed = Framed()
    for line in body.split(b"\n"):
        if len(line) > max_frame_bytes:
            framed.too_large = True
            return framed
        text = line[:-1] if line.endswith(b"\r") else line
        if text:
            framed.frames.append(text)
    return framed
