"""Images and recordings inside a request's body: how many, and how many bytes of it are no text.

``{"image_url": {"url": "data:image/png;base64,iVBOR..."}}``, ``{"input_audio": {"data": "UklGR...", "format": "wav"}}``
"""

from __future__ import annotations

from typing import NamedTuple

MOST_MEDIA = 256
"""Further ones count as text: who sends more has no claim to a good estimate."""
SEARCHED_BYTES = 524_288
"""So much text is searched for them, so that no body holds the event loop up; what they are made of is skipped."""
_URL = b";base64,"
_RECORDING = b'"data"'


class Media(NamedTuple):
    """Those of one body. One that is only named by its URL is counted as one at least, and has no bytes here."""

    number: int = 0
    bytes: int = 0


NO_MEDIA = Media()


def media_in(raw: bytes, *, images: bool, recordings: bool) -> Media:
    """Finds them, without parsing, in a body that is known to have some of these kinds."""
    count = size_bytes = 0
    for mark, inside in (*([(_URL, True)] if images else []), *([(_RECORDING, False)] if recordings else [])):
        found, found_bytes = _strings_after(raw, mark, inside=inside)
        count += found
        size_bytes += found_bytes
    return Media(max(count, 1), size_bytes)


def _strings_after(raw: bytes, mark: bytes, *, inside: bool) -> tuple[int, int]:
    """How many strings follow the mark, which is itself inside each or before it, and their bytes."""
    count = size_bytes = at = 0
    left_bytes = SEARCHED_BYTES
    while count < MOST_MEDIA:
        began, at = at, raw.find(mark, at, at + left_bytes)
        if at < 0:
            break
        at += len(mark)
        left_bytes -= at - began
        if not inside and (at := raw.find(b'"', at) + 1) == 0:
            break
        end = raw.find(b'"', at)
        if end < 0:
            break
        count += 1
        size_bytes += end - at
        at = end
    return count, size_bytes
