"""How numbers are written for Prometheus: text 0.0.4, or OpenMetrics 1.0 where it is asked for. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Final, Literal, NamedTuple

from .histogram import Exemplar

Kind = Literal["counter", "gauge", "histogram"]


class Format(NamedTuple):
    """A form of the exposition.

    Attributes:
        content_type: Its name on the wire.
        openmetrics: Whether it is OpenMetrics: families of counters are named without ``_total``, buckets may have
            exemplars, and there is an end mark.
    """

    content_type: str
    openmetrics: bool


TEXT: Final = Format("text/plain; version=0.0.4; charset=utf-8", False)
OPENMETRICS: Final = Format("application/openmetrics-text; version=1.0.0; charset=utf-8", True)
END: Final = "# EOF\n"

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def wanted(accept: str) -> Format:
    """Returns the form that an ``Accept`` header wants most; text where it names neither."""
    openmetrics = text = 0.0
    for media_range in accept.lower().split(","):
        name, *rest = (part.strip() for part in media_range.split(";"))
        weight, version = 1.0, "1.0.0"
        for parameter in rest:
            key, _, value = parameter.partition("=")
            if key == "q":
                weight = _weight(value)
            elif key == "version":
                version = value.strip('"')
        if name == "application/openmetrics-text" and version == "1.0.0":
            openmetrics = max(openmetrics, weight)
        elif name == "text/plain":
            text = max(text, weight)
    return OPENMETRICS if openmetrics and openmetrics >= text else TEXT


def takes_gzip(accept_encoding: str) -> bool:
    """Whether an ``Accept-Encoding`` header allows gzip."""
    weights = dict[str, float]()
    for coding in accept_encoding.lower().split(","):
        name, _, parameter = coding.partition(";")
        weights[name.strip()] = _weight(parameter.strip().removeprefix("q=") or "1")
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _weight(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0 <= value <= 1 else 0.0


def head(name: str, help: str, kind: Kind, *, openmetrics: bool) -> str:
    """Returns the lines before a family's samples."""
    help = help.translate(_ESCAPES) if openmetrics else help.replace("\\", r"\\").replace("\n", r"\n")
    if openmetrics and kind == "counter":
        name = name.removesuffix("_total")
    return f"# HELP {name} {help}\n# TYPE {name} {kind}\n"


def labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Returns ``{name="value",...}``; nothing for no labels."""
    pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True)]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


class HistogramText(NamedTuple):
    """The lines of one histogram, made once: ``%`` fills in the numbers.

    Attributes:
        plain: Takes the count of each bucket, the sum, and the count.
        exemplified: Takes an exemplar after the count of each bucket.
    """

    plain: str
    exemplified: str


def histogram_text(
    name: str, names: tuple[str, ...], values: tuple[str, ...], edges: tuple[float, ...]
) -> HistogramText:
    """Returns the lines of a histogram with these labels."""
    # A float's own form: to Prometheus before version 3, le="1" and le="1.0" are two series
    les = [repr(float(edge)) for edge in edges] + ["+Inf"]
    buckets = [f"{name}_bucket{labels((*names, 'le'), (*values, le))} ".replace("%", "%%") for le in les]
    plain = labels(names, values).replace("%", "%%")
    rest = f"{name}_sum{plain} %s\n{name}_count{plain} %d\n"
    return HistogramText(
        "".join([f"{bucket}%d\n" for bucket in buckets]) + rest,
        "".join([f"{bucket}%d%s\n" for bucket in buckets]) + rest,
    )


def histogram(
    text: HistogramText, counts: Iterable[float], sum: float, exemplars: Sequence[Exemplar | None] | None = None
) -> str:
    """Returns the lines with their numbers.

    Args:
        text: The lines.
        counts: Of each bucket alone.
        sum: Of all that was observed.
        exemplars: Of each bucket.
    """
    totals = list(accumulate(counts))
    if exemplars is None:
        return text.plain % (*totals, number(sum), totals[-1])
    pairs = zip(totals, map(exemplar, exemplars), strict=True)
    return text.exemplified % (*chain.from_iterable(pairs), number(sum), totals[-1])


def exemplar(found: Exemplar | None) -> str:
    """Returns what follows a bucket's count."""
    if found is None:
        return ""
    return f' # {{trace_id="{found.trace_id}"}} {number(found.value)} {found.unix_s:.3f}'
