"""Queries of dashboards and rules: they parse, and ask for what exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.instruments import histogram
from tests.deploy.boards import Target, targets
from tests.deploy.contract import labels_of
from tests.deploy.promql import Asked, asked, filled

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules"
EDGES = {repr(float(edge)) for name in ("TTFT", "GAP", "QUEUE", "SMALL") for edge in getattr(histogram, name)}


def rules() -> list[Any]:
    files = [yaml.safe_load(path.read_text()) for path in sorted(RULES.glob("*.yaml"))]
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


def name_of(rule: Any) -> str:
    name: str = rule.get("alert") or rule["record"]
    return name


RECORDED = {rule["record"] for rule in rules() if "record" in rule}
QUERIES = [
    *(pytest.param(target, id=target.name) for target in targets()),
    *(
        pytest.param(Target("rules", name, rule["expr"]), id=f"rules: {name}")
        for rule in rules()
        for name in [name_of(rule)]
    ),
]


@pytest.mark.parametrize("target", QUERIES)
def test_the_query_asks_for_metrics_and_labels_that_exist(target: Target) -> None:
    query = asked(filled(target.expr))
    assert query.selected
    known: set[str] = set()
    for one in query.selected:
        for name in one.names:
            labels = frozenset({"pool"}) if name in RECORDED else labels_of(name)
            assert labels is not None, f"{name} is no metric that anybody promised"
            assert {label for label, _ in one.matchers} <= labels, f"{name} has the labels {sorted(labels)}"
            known |= labels
    assert query.grouped <= known


@pytest.mark.parametrize("target", QUERIES)
def test_an_edge_that_is_named_is_one(target: Target) -> None:
    query = asked(filled(target.expr))
    assert edges_of(query) <= EDGES


def edges_of(query: Asked) -> set[str]:
    return {value for one in query.selected for label, value in one.matchers if label == "le"}


@pytest.mark.parametrize("target", QUERIES)
def test_a_quantile_is_made_of_rates_by_bucket(target: Target) -> None:
    query = asked(filled(target.expr))
    if "histogram_quantile" in target.expr:
        assert "le" in query.grouped
    for one in query.selected:
        counted = all(name.endswith(("_total", "_bucket", "_sum", "_count")) for name in one.names)
        if counted and not one.names[0].startswith("weir:"):
            assert "rate(" in target.expr or "increase(" in target.expr
