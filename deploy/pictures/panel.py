"""A panel of a committed dashboard, to be asked for the data that Grafana would show."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.dashboards.files import FOLDER
from deploy.local_prometheus import LocalPrometheus, Series

_LABEL = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class Span:
    """Of time, and how finely it is looked at.

    Attributes:
        begin_unix_s: Where it begins.
        end_unix_s: Where it ends.
        step_s: Between two points.
        window_s: What ``$__rate_interval`` is.
    """

    begin_unix_s: float
    end_unix_s: float
    step_s: float
    window_s: float


@dataclass(frozen=True, slots=True)
class Panel:
    """What a panel says and asks."""

    title: str
    queries: Sequence[tuple[str, str]]

    async def data(self, prometheus: LocalPrometheus, span: Span) -> Mapping[str, Series]:
        """Returns the series by their names in the legend."""
        found: dict[str, Series] = {}
        for expr, legend in self.queries:
            for series in await prometheus.over(_filled(expr, span), span.begin_unix_s, span.end_unix_s, span.step_s):
                labels = series.labels
                found[_LABEL.sub(lambda match: labels.get(match[1], ""), legend)] = series  # noqa: B023 - used at once
        return found


def panel(board: str, title: str) -> Panel:
    """Returns a panel by the name of its dashboard's file and its title."""
    made: Any = json.loads((FOLDER / f"{board}.json").read_text())
    (found,) = [one for one in made["panels"] if one["title"] == title and one["type"] != "stat"]
    return Panel(title, [(target["expr"], target.get("legendFormat", "")) for target in found["targets"]])


def _filled(expr: str, span: Span) -> str:
    expr = expr.replace("$__rate_interval", f"{span.window_s:g}s")
    return re.sub(r"\$(pool|model|endpoint|instance)\b", ".*", expr)
