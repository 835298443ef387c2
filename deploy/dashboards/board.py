"""What all dashboards share: tags, links between them, the range of time, and marks for what happened."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from .promql import WINDOW
from .variables import PROMETHEUS

TAG = "weir"
EJECTIONS = f'sum by (endpoint) (increase(weir_endpoint_transitions_total{{to="ejected"}}[{WINDOW}])) > 0'


def board(uid: str, title: str, description: str) -> dashboard.Dashboard:
    """Returns a dashboard without panels."""
    return (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .readonly()
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Weir's dashboards")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .keep_time(True)
            .include_vars(True)
        )
        .annotation(
            dashboard.AnnotationQuery()
            .name("Ejections")
            .datasource(PROMETHEUS)
            .enable(True)
            .icon_color("red")
            .expr(EJECTIONS)
            .step("15s")
            .title_format("ejected: {{endpoint}}")
        )
    )
