"""A comparison for a terminal, and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from ..attribution.verdict import written
from ..printable import printable
from .comparison import Comparison

_QUANTILES = {"mean": None, "p50": 0.5, "p90": 0.9, "p99": 0.99}
_REASON_CHARS = 100


def drawn(pool: str, policy: str, told: Comparison) -> RenderableType:
    """Draws the comparison of one pool with another policy."""
    elsewhere = f"{told.differing:,} of {told.decisions:,} requests would have gone elsewhere"
    refused = f", {told.refused:,} of them nowhere" if told.refused else ""
    title = Text(f"{pool}: by {policy}, {elsewhere} ({_share(told.differing, told.decisions)}){refused}", style="bold")
    shares = Table("endpoint", "recorded", policy, box=None, pad_edge=False)
    for endpoint in sorted({*told.recorded_share, *told.other_share}):
        shares.add_row(
            endpoint,
            _share(told.recorded_share[endpoint], told.decisions),
            _share(told.other_share[endpoint], told.decisions),
        )
    times = Table("first token", *_QUANTILES, box=None, pad_edge=False)
    for name, seconds in (("expected, recorded", told.recorded_s), (f"expected, {policy}", told.other_s)):
        times.add_row(name, *[_written(value) for value in summary(seconds).values()])
    times.add_row("took, recorded", *[_written(value) for value in summary(told.took_s).values()])
    parts: list[RenderableType] = [title, Text(), shares, Text(), times]
    if told.examples:
        columns = [Column(name, overflow="fold") for name in ("request", "recorded", policy, "sooner by")]
        examples = Table(*columns, box=None, pad_edge=False)
        for one in told.examples:
            examples.add_row(
                printable(one.request_id, _REASON_CHARS),
                f"{one.recorded}: {printable(one.recorded_reason, _REASON_CHARS)}",
                f"{one.other}: {printable(one.other_reason, _REASON_CHARS)}",
                f"{'-' if one.gain_s < 0 else ''}{written(abs(one.gain_s))}",
            )
        parts += [Text(), examples]
    return Group(*parts)


def as_json(policy: str, told: Comparison) -> dict[str, Any]:
    """Returns the same for programs; times in seconds."""
    return {
        "policy": policy,
        "decisions": told.decisions,
        "differing": told.differing,
        "refused": told.refused,
        "recorded": {"endpoints": dict(told.recorded_share), "expected_ttft_s": summary(told.recorded_s)},
        "replayed": {"endpoints": dict(told.other_share), "expected_ttft_s": summary(told.other_s)},
        "took_ttft_s": summary(told.took_s),
        "examples": [one._asdict() for one in told.examples],
    }


def summary(rising: Sequence[float]) -> dict[str, float | None]:
    """Returns mean and quantiles of values in rising order; None of each if there are no values."""
    if not rising:
        return dict.fromkeys(_QUANTILES)
    last = len(rising) - 1
    return {
        name: sum(rising) / len(rising) if share is None else rising[round(share * last)]
        for name, share in _QUANTILES.items()
    }


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _written(seconds: float | None) -> str:
    return "-" if seconds is None else written(seconds)
