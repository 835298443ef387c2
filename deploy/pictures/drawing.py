"""Panels as PNGs, in about the colours of the dashboards."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from deploy.dashboards.panels import OUTCOME_COLOURS
from deploy.local_prometheus import Series

from .panel import Span

SIZE_INCHES = (7.6, 3.4)
DPI = 100


def heat_map(path: Path, title: str, rows: Mapping[str, Series], span: Span) -> None:
    """Draws cumulative buckets, by their upper edge in seconds."""
    edges = sorted((edge for edge in rows if edge != "+Inf"), key=float)
    times = _times(span)
    below = np.array([_at(rows[edge], times) for edge in edges])
    counts = np.diff(np.nan_to_num(below), axis=0, prepend=0.0).clip(min=0.0)
    used = np.nonzero(counts.sum(axis=1) > 0)[0]
    lowest, highest = int(used[0]), int(used[-1])
    counts = counts[lowest : highest + 1]
    bounds_s = [float(edges[lowest - 1]) if lowest else float(edges[0]) / 2]
    bounds_s += [float(edge) for edge in edges[lowest : highest + 1]]
    figure, axes = _figure(title)
    x = np.append(times, times[-1] + span.step_s) - span.begin_unix_s
    masked = np.ma.masked_less_equal(counts, 0.0)
    drawn = axes.pcolormesh(x, bounds_s, masked, cmap="turbo", norm=PowerNorm(0.5, vmin=0.0))
    axes.set_yscale("log")
    axes.set_yticks(bounds_s, [_duration(bound) for bound in bounds_s])
    axes.minorticks_off()
    axes.set_xlabel("seconds since the start", fontsize=8)
    figure.colorbar(drawn, ax=axes, label="answers", pad=0.02)
    _save(figure, path)


def parts(path: Path, title: str, unit: str, found: Mapping[str, Series], span: Span) -> None:
    """Draws the parts of a whole, one upon the other."""
    times = _times(span)
    names = list(found)
    values = [np.nan_to_num(_at(found[name], times)).clip(min=0.0) for name in names]
    figure, axes = _figure(title)
    colours = [OUTCOME_COLOURS.get(name) for name in names]
    given = {"colors": colours} if all(colours) else {}
    axes.stackplot(times - span.begin_unix_s, values, labels=names, alpha=0.8, **given)
    _finish(figure, axes, unit, path)


def lines(path: Path, title: str, unit: str, found: Mapping[str, Series], span: Span) -> None:
    """Draws each series as a line."""
    times = _times(span)
    figure, axes = _figure(title)
    for name, series in found.items():
        axes.plot(times - span.begin_unix_s, _at(series, times), label=name, linewidth=1.4)
    axes.set_ylim(bottom=0)
    _finish(figure, axes, unit, path)


def _figure(title: str) -> tuple[Any, Any]:
    figure: Any = Figure(figsize=SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontsize=10)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _finish(figure: Any, axes: Any, unit: str, path: Path) -> None:
    axes.margins(x=0)
    axes.set_xlabel("seconds since the start", fontsize=8)
    axes.set_ylabel(unit, fontsize=8)
    axes.grid(visible=True, alpha=0.25)
    axes.legend(loc="upper left", frameon=False, fontsize=8)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    # No date and no version: a picture changes when what it shows does.
    figure.savefig(path, dpi=DPI, metadata={"Software": None})


def _times(span: Span) -> Any:
    steps = math.floor((span.end_unix_s - span.begin_unix_s) / span.step_s)
    return span.begin_unix_s + span.step_s * np.arange(steps + 1)


def _at(series: Series, times: Any) -> Any:
    """Returns its values at these times; NaN where it has none."""
    values = np.full(len(times), math.nan)
    for unix_s, value in series.points:
        at = round((unix_s - times[0]) / (times[1] - times[0]))
        if 0 <= at < len(values):
            values[at] = value
    return values


def _duration(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:g} ms"
