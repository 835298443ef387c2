"""Lines of an Ollama stream that differ from an earlier one in date and text only: rewritten, and not parsed."""

from __future__ import annotations

from typing import NamedTuple

from .json_values import write_json

_DATE_KEY = b'"created_at":"'
_BACKSLASH = ord("\\")


class LineTemplate(NamedTuple):
    """What stands around the date and the text of a line that was read, and around the text in the client's event.

    ``end`` holds the line's LF, which no JSON string can. So a line that begins, goes on and ends like this one holds
    nothing else that must be read, whichever way an engine may spell it.

    Attributes:
        start: All before the date.
        start_bytes: Its length.
        between: From the date's closing quote to the text.
        between_bytes: Its length.
        end: From the text's closing quote on.
        end_bytes: Its length.
        ours: The client's event without the text, cut where the text belongs.
    """

    start: bytes
    start_bytes: int
    between: bytes
    between_bytes: int
    end: bytes
    end_bytes: int
    ours: tuple[bytes, ...]

    def rewrite(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Appends an event for each line from ``at`` on, up to the first that is no such line.

        Returns:
            Where that one is; the length of ``data`` if there is none.
        """
        start, start_bytes, between, between_bytes, end, end_bytes, ours = self
        while data.startswith(start, at):
            date_end = data.find(b'"', at + start_bytes)
            if not data.startswith(between, date_end):
                break
            text_at = date_end + between_bytes
            quote = data.find(b'"', text_at)
            # An empty text is no output, and a quote after a backslash may be the text's.
            if quote <= text_at or data[quote - 1] == _BACKSLASH or not data.startswith(end, quote):
                break
            out.append(data[text_at:quote].join(ours))
            at = quote + end_bytes
        return at


def line_template(line: bytes, key: bytes, text: str, ours: tuple[bytes, ...]) -> LineTemplate | None:
    """Makes a template of a line that was read.

    Args:
        line: As the engine wrote it, without its LF.
        key: Of the text.
        text: All that the line adds to the answer; not empty.
        ours: As in ``LineTemplate``.

    Returns:
        None unless it is certain where the date and the text are.
    """
    spelt = b'"%b":%b' % (key, write_json(text, b""))
    before, _, dated = line.partition(_DATE_KEY)
    _, quote, after = dated.partition(b'"')
    between, _, end = after.partition(spelt)
    if line.count(_DATE_KEY) != 1 or line.count(spelt) != 1 or spelt not in after:
        return None
    start, between, end = before + _DATE_KEY, b'%b%b"%b":"' % (quote, between, key), b'"%b\n' % end
    return LineTemplate(start, len(start), between, len(between), end, len(end), ours)
