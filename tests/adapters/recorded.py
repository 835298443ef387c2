"""Reads recordings: raw HTTP/1.1 exchanges with real engines (see ``recordings/README.md``)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "recordings"


@dataclass(frozen=True, slots=True)
class Recording:
    """One exchange.

    Attributes:
        folder: The engine and how it was started, for example ``vllm-flags``.
        name: The case.
        request_headers: Names in lower case.
        headers: Of the answer, names in lower case.
        body: The answer's body without chunk framing.
        pieces: The same, as the reads off the socket had it; no piece is empty.
        complete: Whether the body's framing (length or last chunk) was complete.
        request_body: As sent, chunk framing removed; a body above 20 kB is not whole.
    """

    folder: str
    name: str
    method: str
    path: str
    request_headers: dict[str, str]
    request_body: bytes
    status: int
    headers: dict[str, str]
    body: bytes
    pieces: tuple[bytes, ...]
    complete: bool

    @property
    def id(self) -> str:
        return f"{self.folder}/{self.name}"

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")

    @property
    def request(self) -> dict[str, Any]:
        """The JSON object that was sent; {} if the body is none."""
        try:
            value: object = json.loads(self.request_body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def recordings(*folders: str) -> list[Recording]:
    """All recordings of these folders, or of all, by name."""
    names = folders or tuple(sorted(path.name for path in FOLDER.iterdir() if path.is_dir()))
    return [read(path) for folder in names for path in sorted((FOLDER / folder).glob("*.res"))]


def read(path: Path) -> Recording:
    """Reads the recording whose answer is in ``path``."""
    request_line, request_headers, sent = _message(path.with_suffix(".req").read_bytes())
    method, target, _ = request_line.split(" ")
    raw = path.read_bytes()
    status_line, headers, rest = _message(raw)
    while status_line.split(" ")[1] == "100":
        status_line, headers, rest = _message(rest)
    offset = len(raw) - len(rest)
    spans, complete = _spans(rest, headers, has_body=method != "HEAD")
    ends: list[int] = [
        read_bytes - offset for _, read_bytes in json.loads(path.with_suffix(".json").read_bytes())["reads"]
    ]
    body = b"".join(rest[a:b] for a, b in spans)
    pieces = [
        b"".join(rest[max(a, c) : min(b, d)] for a, b in spans) for c, d in pairwise([0, *(e for e in ends if e > 0)])
    ]
    assert b"".join(pieces) == body, f"{path}: the reads do not cover the body"
    return Recording(
        folder=path.parent.name,
        name=path.stem,
        method=method,
        path=target,
        request_headers=request_headers,
        request_body=b"".join(sent[a:b] for a, b in _spans(sent, request_headers, has_body=True)[0]),
        status=int(status_line.split(" ")[1]),
        headers=headers,
        body=body,
        pieces=tuple(piece for piece in pieces if piece),
        complete=complete,
    )


def _message(raw: bytes) -> tuple[str, dict[str, str], bytes]:
    head, _, rest = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    return first, {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}, rest


def _spans(rest: bytes, headers: dict[str, str], *, has_body: bool) -> tuple[list[tuple[int, int]], bool]:
    """Where in ``rest`` the body's bytes are, and whether they are all there."""
    if not has_body:
        return [], True
    if headers.get("transfer-encoding") != "chunked":
        length = int(headers.get("content-length", len(rest)))
        return [(0, min(length, len(rest)))], length <= len(rest)
    spans: list[tuple[int, int]] = []
    at = 0
    while (line_end := rest.find(b"\r\n", at)) >= 0:
        size = int(rest[at:line_end], 16)
        if size == 0:
            return spans, True
        start = line_end + 2
        spans.append((start, min(start + size, len(rest))))
        at = start + size + 2
    return spans, False
