"""What one can choose at the top of a dashboard."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model

PROMETHEUS = common.DataSourceRef(type_val="prometheus", uid="${datasource}")

# As `le` has them: edges of gateway/instruments/histogram.py, so that the share below them is counted and not guessed.
TTFT_EDGES = ("0.5", "1.0", "1.5", "2.0", "2.5", "5.0", "10.0")
GAP_EDGES = ("0.5", "0.75", "1.0", "2.5", "5.0", "10.0")
TARGETS = ("0.9", "0.95", "0.99", "0.995", "0.999")


def datasource() -> dashboard.DatasourceVariable:
    return dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def pool() -> dashboard.QueryVariable:
    return _labels("pool", "Pool", "label_values(weir_endpoint_info, pool)")


def model_name() -> dashboard.QueryVariable:
    return _labels("model", "Model", 'label_values(weir_requests_total{pool=~"$pool"}, model)')


def endpoint() -> dashboard.QueryVariable:
    return _labels("endpoint", "Endpoint", 'label_values(weir_endpoint_info{pool=~"$pool"}, endpoint)')


def instance() -> dashboard.QueryVariable:
    return _labels("instance", "Gateway", "label_values(weir_build_info, instance)")


def slo_ttft() -> dashboard.CustomVariable:
    return _choice("slo_ttft", "First token within (s)", TTFT_EDGES, "2.5")


def slo_gap() -> dashboard.CustomVariable:
    return _choice("slo_gap", "No gap above (s)", GAP_EDGES, "5.0")


def target() -> dashboard.CustomVariable:
    return _choice("target", "Share promised", TARGETS, "0.95")


def _labels(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(PROMETHEUS)
        .query(query)
        .definition(query)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .current(model.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _choice(name: str, label: str, values: tuple[str, ...], chosen: str) -> dashboard.CustomVariable:
    options = [model.VariableOption(selected=value == chosen, text=value, value=value) for value in values]
    return (
        dashboard.CustomVariable(name)
        .label(label)
        .values(",".join(values))
        .options(options)
        .allow_custom_value(False)
        .current(model.VariableOption(selected=True, text=chosen, value=chosen))
    )
