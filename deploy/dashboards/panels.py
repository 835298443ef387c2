"""The kinds of panels that the dashboards have, each the same wherever it appears."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models import prometheus as prometheus_model

from .variables import PROMETHEUS

HEIGHT = 9
TILE_HEIGHT = 4
SECONDS, RATIO, PER_SECOND, BYTES, COUNT = "s", "percentunit", "reqps", "bytes", "short"
TOKENS_PER_SECOND, EVENTS_PER_SECOND = "tok/s", "cps"
GREEN, ORANGE, RED, GREY = "green", "orange", "red", "#8e8e8e"
OUTCOME_COLOURS = {
    "ok": GREEN,
    "client_error": "blue",
    "cancelled": GREY,
    "shed": ORANGE,
    "timeout": "purple",
    "upstream_error": RED,
    "internal_error": "dark-red",
}


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel.

    Attributes:
        expr: PromQL.
        legend: The name of each series, with ``{{label}}`` filled in; in a table, the column's.
        exemplar: Draw the traces that Prometheus keeps beside the buckets.
    """

    expr: str
    legend: str = ""
    exemplar: bool = False


@dataclass(frozen=True, slots=True)
class Steps:
    """Where a value turns from one colour into the next."""

    first: str
    later: Sequence[tuple[float, str]]

    def build(self) -> dashboard.ThresholdsConfig:
        steps = [model.Threshold(value=None, color=self.first)]
        steps += [model.Threshold(value=value, color=colour) for value, colour in self.later]
        return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)


def tile(title: str, description: str, unit: str, expr: str, steps: Steps, *, width: int = 4) -> stat.Panel:
    """One number over the whole range of time, and its course behind it."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .span(width)
        .height(TILE_HEIGHT)
        .unit(unit)
        .decimals(2)
        .thresholds(steps.build())
        .color_mode(common_model.BigValueColorMode.BACKGROUND)
        .graph_mode(common_model.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_target("A", Query(expr)).instant())
    )


def lines(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 8,
    stacked: bool = False,
    colours: Mapping[str, str] | None = None,
) -> timeseries.Panel:
    """Lines over time; stacked, the parts of a whole."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .span(width)
        .height(HEIGHT)
        .unit(unit)
        .min(0)
        .line_width(1)
        .fill_opacity(60 if stacked else 8)
        .show_points(common_model.VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(common_model.LegendDisplayMode.TABLE)
            .placement(common_model.LegendPlacement.BOTTOM)
            .calcs(["mean", "max"])
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_model.TooltipDisplayMode.MULTI)
            .sort(common_model.SortOrder.DESCENDING)
        )
    )
    if stacked:
        panel.stacking(common.StackingConfig().mode(common_model.StackingMode.NORMAL).group("A"))
    for name, colour in (colours or {}).items():
        fixed = {"mode": "fixed", "fixedColor": colour}
        panel.override_by_name(name, [model.DynamicConfigValue(id_val="color", value=fixed)])
    return _with_targets(panel, queries)


def heat_map(title: str, description: str, unit: str, query: Query, *, width: int = 8) -> heatmap.Panel:
    """How many values fell into which bucket, over time."""
    return (
        heatmap.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .span(width)
        .height(HEIGHT)
        .calculate(False)
        .cell_gap(1)
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .color(
            heatmap.HeatmapColorOptions()
            .mode(heatmap_model.HeatmapColorMode.SCHEME)
            .scheme("Spectral")
            .reverse(True)
            .exponent(0.5)
            .steps(64)
        )
        .y_axis(heatmap.YAxisConfig().unit(unit).axis_placement(common_model.AxisPlacement.LEFT))
        .tooltip(heatmap.HeatmapTooltip().mode(common_model.TooltipDisplayMode.SINGLE).y_histogram(True))
        .show_legend()
        .with_target(
            _target("A", query).range().format(prometheus_model.PromQueryFormat.HEATMAP).legend_format("{{le}}")
        )
    )


def states(
    title: str, description: str, query: Query, words: Mapping[str, tuple[str, str]], *, width: int = 8
) -> statetimeline.Panel:
    """What each thing was, over time; ``words`` gives a value its text and colour."""
    mapped = {
        value: model.ValueMappingResult(text=text, color=colour, index=index)
        for index, (value, (text, colour)) in enumerate(words.items())
    }
    return (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .span(width)
        .height(HEIGHT)
        .mappings([model.ValueMap(options=mapped)])
        .show_value(common_model.VisibilityMode.NEVER)
        .with_target(_target("A", query).range())
    )


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of each row of a table.

    Attributes:
        name: The column's heading.
        expr: PromQL whose result has the labels of the rows.
        unit: Grafana's name of the unit.
    """

    name: str
    expr: str
    unit: str


def figures(
    title: str, description: str, rows: Sequence[str], columns: Sequence[Column], link: tuple[str, str], *,
    width: int = 24,
) -> table.Panel:  # fmt: skip
    """A row for each combination of the labels ``rows``; ``link`` is a title and a URL for each row."""
    ids = [chr(ord("A") + number) for number in range(len(columns))]
    renamed = {f"Value #{id}": column.name for id, column in zip(ids, columns, strict=True)}
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .span(width)
        .height(HEIGHT)
        .with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            model.DataTransformerConfig(
                id_val="organize", options={"excludeByName": {"Time": True}, "renameByName": renamed}
            )
        )
    )
    for id, column in zip(ids, columns, strict=True):
        query = _target(id, Query(column.expr)).instant().format(prometheus_model.PromQueryFormat.TABLE)
        panel.with_target(query)
        panel.override_by_name(column.name, [model.DynamicConfigValue(id_val="unit", value=column.unit)])
    text, url = link
    links = [{"title": text, "url": url}]
    panel.override_by_name(rows[-1], [model.DynamicConfigValue(id_val="links", value=links)])
    return panel


def _with_targets(panel: timeseries.Panel, queries: Sequence[Query]) -> timeseries.Panel:
    for number, query in enumerate(queries):
        panel.with_target(_target(chr(ord("A") + number), query).range())
    return panel


def _target(ref_id: str, query: Query) -> prometheus.Dataquery:
    made = prometheus.Dataquery().ref_id(ref_id).datasource(PROMETHEUS).expr(query.expr)
    if query.legend:
        made.legend_format(query.legend)
    if query.exemplar:
        made.exemplar(True)
    return made
