"""One request as a waterfall, and several of one trace as a pipeline, for a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..attribution.explanation import Explanation
from ..attribution.verdict import written
from ..printable import printable

BAR_CHARS = 48
LEAST_BAR_CHARS = 8
LEAST_WHY_CHARS = 40
_SHOWN_CHARS = 200
_GAP_CHARS = 2  # between two columns
_YEAR_CHARS, _DAY_CHARS = 5, 10  # of a time: 2026-12-01T04:58:54
_COLOURS = {
    "read": "cyan",
    "queue": "yellow",
    "route": "cyan",
    "retries": "red",
    "hedge_wait": "yellow",
    "connect": "magenta",
    "engine_wait": "yellow",
    "engine_queue": "yellow",
    "engine_load": "magenta",
    "prefill": "blue",
    "engine_other": "magenta",
    "decode": "green",
    "client_write_wait": "red",
    "gateway": "cyan",
}

# How a request ended, before why it took so long; what is in brackets may hold a colon of its own.
_ENDING = re.compile(r"^(?:[^:(]|:(?! )|\([^)]*\))*: ")


def waterfall(told: Explanation) -> RenderableType:
    """Draws one explanation: its verdict, its phases in order, and its attempts if there were several."""
    parts: list[RenderableType] = [Text(_title(told), style="bold"), Text(told["verdict"]), Text(), _phases(told)]
    if len(told["attempts"]) > 1:
        parts += [Text(), _attempts(told)]
    return Group(*parts)


def pipeline(calls: Sequence[Explanation]) -> RenderableType:
    """Draws the calls of one trace: each one's share of the whole, and the time in between."""
    starts_s = [datetime.fromisoformat(call["received"]).timestamp() for call in calls]
    ends_s = [start_s + call["duration_s"] for start_s, call in zip(starts_s, calls, strict=True)]
    begun_s, whole_s = starts_s[0], max(ends_s) - starts_s[0]
    busy_s = _covered_s(list(zip(starts_s, ends_s, strict=True)))
    title = f"{len(calls)} requests of trace {_shown(calls[0]['trace_id'])} in {written(whole_s)}"
    if whole_s - busy_s > 0:
        title += f", {written(whole_s - busy_s)} of it with none of them at Weir"
    table = _table("request", "took", "share", "")
    for call, start_s in zip(calls, starts_s, strict=True):
        share = f"{call['duration_s'] / whole_s:.0%}" if whole_s else ""
        bar = _Bar(start_s - begun_s, call["duration_s"], whole_s, "green")
        table.add_row(f"{call['operation']} {_shown(call['model'])}", written(call["duration_s"]), share, bar)
    return Group(Text(title, style="bold"), table, *(Group(Text(), waterfall(call)) for call in calls))


def listing(calls: Sequence[Explanation], width_chars: int) -> RenderableType:
    """Draws many requests, one a line where there is room for what is said of them, else their ids above that."""
    head = ("request", "received", "took", "ttft", "outcome")
    rows: list[tuple[str, ...]] = []
    for call in calls:
        ttft = "-" if call["ttft_s"] is None else written(call["ttft_s"])
        took = written(call["duration_s"])
        rows.append((_shown(call["request_id"]), call["received"][:19], took, ttft, call["outcome"]))
    whys = [_ENDING.sub("", call["verdict"], count=1) or call["verdict"] for call in calls]
    taken_chars = sum([max(map(cell_len, column)) + _GAP_CHARS for column in zip(head, *rows, strict=True)])
    if taken_chars + LEAST_WHY_CHARS <= width_chars:
        table = _table(*head, "why")
        for row, why in zip(rows, whys, strict=True):
            table.add_row(*row, why)
        return table
    one_day = len({call["received"][:_DAY_CHARS] for call in calls}) == 1
    table = _table("took", "ttft", "outcome", "received", "request and why")
    for (name, received, took, ttft, outcome), why in zip(rows, whys, strict=True):
        table.add_row(took, ttft, outcome, received[_DAY_CHARS + 1 if one_day else _YEAR_CHARS :], f"{name}\n{why}")
    return table


def _title(told: Explanation) -> str:
    where = f" at {_shown(told['endpoint'])}" if told["endpoint"] else ""
    trace = f", trace {_shown(told['trace_id'])}" if told["trace_id"] else ""
    model = f" {_shown(told['model'])}" if told["model"] else ""
    return f"{told['operation']}{model}{where}: request {_shown(told['request_id'])}{trace}"


def _phases(told: Explanation) -> Table:
    table = _table("phase", "took", "", "")
    at_s = 0.0
    for phase in told["phases"]:
        duration_s = phase["duration_s"]
        bar = _Bar(at_s, duration_s, told["duration_s"], _COLOURS.get(phase["name"], "white"))
        source = "" if phase["source"] == "measured" else phase["source"]
        table.add_row(phase["name"].replace("_", " "), written(duration_s), source, bar)
        at_s += duration_s
    return table


def _attempts(told: Explanation) -> Table:
    table = _table("attempt", "endpoint", "outcome", "began", "ended")
    for number, attempt in enumerate(told["attempts"], 1):
        began, ended = (
            "-" if attempt[at] is None else f"+{written(attempt[at])}" for at in ("chosen_at_s", "ended_at_s")
        )
        outcome = "lost" if attempt["lost"] else attempt["error_type"] or attempt["outcome"] or "-"
        table.add_row(
            f"{number} hedge" if attempt["role"] == "hedge" else str(number),
            _shown(attempt["endpoint"]),
            outcome,
            began,
            ended,
        )
    return table


def _table(*columns: str) -> Table:
    """Returns a table whose last column, and names in it, are folded where there is little room."""
    table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    for column in columns:
        right = column in ("took", "share", "ttft", "began", "ended")
        folds = column is columns[-1] or column in ("request", "endpoint")
        table.add_column(column, justify="right" if right else "left", no_wrap=not folds, overflow="fold")
    return table


@dataclass(frozen=True, slots=True)
class _Bar:
    """A span of a whole, drawn in the width there is. What is too short for it still has one character."""

    at_s: float
    duration_s: float
    whole_s: float
    colour: str

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(LEAST_BAR_CHARS, BAR_CHARS)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, BAR_CHARS)
        scale = width / self.whole_s if self.whole_s > 0 else 0.0
        begin = min(int(self.at_s * scale), width - 1)
        length = max(min(round(self.duration_s * scale), width - begin), 1)
        yield Text(" " * begin + "█" * length, style=self.colour)


def _covered_s(spans: list[tuple[float, float]]) -> float:
    """How long at least one of the spans lasted; they are sorted by their begin."""
    covered_s, reached_s = spans[0][1] - spans[0][0], spans[0][1]
    for _, (start_s, end_s) in pairwise(spans):
        covered_s += max(end_s - max(start_s, reached_s), 0.0)
        reached_s = max(reached_s, end_s)
    return covered_s


def _shown(text: str) -> str:
    return printable(text, _SHOWN_CHARS)
