"""Framers: reads off a socket, cut anywhere, into the frames they complete.

SSE (WHATWG HTML, section "Server-sent events"): fields ``name: value``, an event ends with a blank line.
NDJSON: one JSON text a line.

Both cost time linear in the bytes fed, however small the reads are, and hold at most ``max_frame_bytes``.
"""

from __future__ import annotations

from .types import MalformedStream

MAX_FRAME_BYTES = 16 * 1024 * 1024
MAX_STRAY_BYTES = 64 * 1024

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_IGNORED_FIELDS = frozenset((b"event", b"id", b"retry"))


class SseFramer:
    """Server-sent events in any legal spelling; only their data is kept.

    Lines end with LF, CRLF or CR in any mix. Not used again after it raised.

    Attributes:
        comments: Comment lines so far.
        stray: The last line that is no field of an event, b"" if there was none; its first ``MAX_STRAY_BYTES``. Some
            servers write a bare JSON error into an event stream.
    """

    __slots__ = ("_data", "_first_line", "_lines", "_max_frame_bytes", "_swallow_lf", "comments", "stray")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.comments = 0
        self.stray = b""
        self._max_frame_bytes = max_frame_bytes
        self._lines = _LineBuffer()
        self._data = bytearray()  # of the open event; each line of it with an LF at its end
        self._first_line = True
        self._swallow_lf = False

    @property
    def pending_bytes(self) -> int:
        """Bytes of the open event and of the open line."""
        return len(self._data) + len(self._lines.open)

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the data of the events that ``data`` completes; the data lines of one event are joined by LF.

        Events without data, or with empty data, are left out.

        Raises:
            MalformedStream: The open event and the line after it are larger than the bound.
        """
        if data.endswith(b"\n\n") and (frames := self._whole_events(data)):
            return frames
        if not data:
            return []
        return self._take(self._lines.split(self._with_lf_only(data)))

    def close(self) -> list[bytes]:
        """Says that the body ended. Returns the data of an event that no blank line ended, cut or not.

        Raises:
            MalformedStream: As for ``feed``.
        """
        return self._take([*self._lines.close(), b""])

    def _whole_events(self, data: bytes) -> list[bytes]:
        """The usual read, whole one-line events, read without a walk over its lines; [] if it is another."""
        if self._data or self._lines.open or self._swallow_lf or b"\r" in data or len(data) > self._max_frame_bytes:
            return []
        frames: list[bytes] = []
        for block in data[:-2].split(b"\n\n"):
            if not block.startswith(b"data: ") or len(block) == 6 or b"\n" in block:
                return []
            frames.append(block[6:])
        self._first_line = False
        return frames

    def _with_lf_only(self, data: bytes) -> bytes:
        if self._swallow_lf and data.startswith(b"\n"):
            data = data[1:]
        self._swallow_lf = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data

    def _take(self, lines: list[bytes]) -> list[bytes]:
        frames: list[bytes] = []
        for line in lines:
            self._check(len(line))
            if self._first_line:
                self._first_line = False
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if line:
                self._take_field(line)
            elif self._data:
                self._data.pop()
                if self._data:
                    frames.append(bytes(self._data))
                    self._data.clear()
        self._check(len(self._lines.open))
        return frames

    def _take_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data += value.removeprefix(b" ")
            self._data += b"\n"
        elif not name:
            self.comments += 1
        elif name not in _IGNORED_FIELDS:
            self.stray = line[:MAX_STRAY_BYTES]

    def _check(self, line_bytes: int) -> None:
        if len(self._data) + line_bytes > self._max_frame_bytes:
            raise MalformedStream(f"an event is larger than {self._max_frame_bytes} bytes")


class NdjsonFramer:
    """Lines that end with LF or CRLF; empty ones are left out. Not used again after it raised."""

    __slots__ = ("_lines", "_max_frame_bytes")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._lines = _LineBuffer()

    @property
    def pending_bytes(self) -> int:
        """Bytes of the open line."""
        return len(self._lines.open)

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the lines that ``data`` completes.

        Raises:
            MalformedStream: A line is larger than the bound.
        """
        frames = self._take(self._lines.split(data))
        self._check(len(self._lines.open))
        return frames

    def close(self) -> list[bytes]:
        """Says that the body ended. Returns the line that no LF ended, cut or not."""
        return self._take(self._lines.close())

    def _take(self, lines: list[bytes]) -> list[bytes]:
        frames: list[bytes] = []
        for line in lines:
            self._check(len(line))
            if frame := line.removesuffix(b"\r"):
                frames.append(frame)
        return frames

    def _check(self, line_bytes: int) -> None:
        if line_bytes > self._max_frame_bytes:
            raise MalformedStream(f"a line is larger than {self._max_frame_bytes} bytes")


class _LineBuffer:
    """Cuts reads at LF and keeps the start of a line until its end comes.

    Attributes:
        open: That start.
    """

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open = bytearray()

    def split(self, data: bytes) -> list[bytes]:
        """Returns the lines that ``data`` ends, without their LF."""
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines and self.open:
            lines[0] = bytes(self.open + lines[0])
            self.open.clear()
        self.open += rest
        return lines

    def close(self) -> list[bytes]:
        """Returns the open line, if any."""
        line = bytes(self.open)
        self.open.clear()
        return [line] if line else []
