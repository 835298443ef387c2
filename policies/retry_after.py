"""What an engine means by ``Retry-After``, and what a client is told when all are busy."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC
from email.utils import parsedate_to_datetime
from math import ceil, inf

LONGEST_S = 60.0
"""An engine that asks for more is asked again after this: it may have said so by mistake, or be well long before."""
_MOST_CHARS = 64


def retry_after_s(value: str, now_unix_s: float) -> float | None:
    """Returns the seconds that a ``Retry-After`` asks for, 0 to ``LONGEST_S``; None if it says neither them nor a date.

    Args:
        value: The header's.
        now_unix_s: Wall clock; a date counts from it.
    """
    text = value.strip()[:_MOST_CHARS]
    if text.replace(".", "", 1).isdecimal() and text.isascii():
        return min(float(text), LONGEST_S)
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # the second is what a year of eleven digits makes
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)  # -0000: RFC 9110 has no other zone than GMT
    return min(max(until.timestamp() - now_unix_s, 0.0), LONGEST_S)


def soonest(waits_s: Iterable[float | None]) -> str | None:
    """Returns the shortest of these waits as the header's value, in whole seconds and at least 1; None without any."""
    least_s = min((wait_s for wait_s in waits_s if wait_s is not None), default=inf)
    return None if least_s == inf else str(max(ceil(least_s), 1))
