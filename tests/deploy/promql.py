"""What a query asks for, by a parser that is not Grafana's and not Prometheus'."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import promql_parser as parser

# As the boxes at the top of a dashboard stand when it is opened.
VARIABLES: Mapping[str, str] = {
    "$__rate_interval": "1m",
    "$__range": "1h",
    "$slo_ttft": "2.5",
    "$slo_gap": "5.0",
    "$target": "0.95",
    "$pool": ".*",
    "$model": ".*",
    "$endpoint": ".*",
    "$instance": ".*",
}


def filled(expr: str, values: Mapping[str, str] = VARIABLES) -> str:
    """Returns the query as Grafana would send it."""
    for name in sorted(values, key=len, reverse=True):
        expr = expr.replace(name, values[name])
    assert "$" not in expr, expr
    return expr


@dataclass(frozen=True, slots=True)
class Selected:
    """One selector of a query.

    Attributes:
        names: The metrics; several if they are named by a pattern.
        matchers: Label and value, without the metric's name.
    """

    names: tuple[str, ...]
    matchers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a whole query asks for.

    Attributes:
        selected: In the order of the query.
        grouped: Every label that is grouped by, or matched on.
    """

    selected: tuple[Selected, ...]
    grouped: frozenset[str]


def asked(expr: str) -> Asked:
    """Parses a query; ValueError if it is none."""
    selected: list[Selected] = []
    grouped: set[str] = set()

    def visit(node: parser.Expr) -> None:
        match node:
            case parser.MatrixSelector():
                selected.append(_selected(node.vector_selector))
            case parser.VectorSelector():
                selected.append(_selected(node))
            case parser.AggregateExpr() if node.modifier is not None:
                grouped.update(node.modifier.labels)
            case parser.BinaryExpr() if node.modifier is not None:
                if node.modifier.matching is not None:
                    grouped.update(node.modifier.matching.labels)
                grouped.update(node.modifier.group_labels or ())
            case _:
                pass

    parser.walk(parser.parse(expr), visit)
    return Asked(tuple(selected), frozenset(grouped))


def _selected(node: parser.VectorSelector) -> Selected:
    pairs = [(matcher.name, matcher.value) for matcher in node.matchers.matchers]
    patterns = [value for name, value in pairs if name == "__name__"]
    names = [node.name] if node.name else [name for pattern in patterns for name in pattern.split("|")]
    assert names, node
    assert all(re.fullmatch(r"[a-z0-9_:]+", name) for name in names), names
    return Selected(tuple(names), tuple(pair for pair in pairs if pair[0] != "__name__"))
