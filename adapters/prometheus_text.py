"""Single gauges out of a Prometheus exposition: lines of ``name{label="value"} 1.5``, a timestamp behind or not.

Engines write thousands of lines, of which few are wanted, so the text is searched for those and not parsed: a megabyte
takes 1 ms, where prometheus_client's parser takes half a second.
"""

from __future__ import annotations

from .failures import AdapterError

MOST_SERIES = 4096
"""The most lines that may begin with one name: an engine has one for each model and data-parallel rank."""
NUMBER_BYTES = 64
"""The longest number with the spaces before it; what is behind is not read."""


def series(body: bytes, name: bytes) -> list[float]:
    """Returns the values of all series of a gauge, in their order; NaN and infinity as they stand.

    Raises:
        AdapterError: A line of that name is no sample, or there are too many.
    """
    values: list[float] = []
    at = 0 if body.startswith(name) else body.find(b"\n" + name) + 1 or -1
    for _ in range(MOST_SERIES):
        if at < 0:
            return values
        start = at + len(name)
        end = body.find(b"\n", start)
        if end < 0:
            end = len(body)
        if start == end or body[start] in b"{ \t":  # else it is the beginning of a longer name
            values.append(_value(body, start, end))
        at = body.find(b"\n" + name, end) + 1 or -1
    raise AdapterError(f"the metrics have {MOST_SERIES} or more series of one name")


def _value(body: bytes, start: int, end: int) -> float:
    # Labels end at the last brace: what follows has none, since only counters and histograms have exemplars
    told = body[max(body.rfind(b"}", start, end) + 1, start) : end]
    try:
        return float(told[:NUMBER_BYTES].split(None, 1)[0])
    except (IndexError, ValueError):
        raise AdapterError("a sample of the metrics has no number") from None
