"""``weir endpoints``: the endpoints of a gateway that runs, and how they are."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Any

from rich.table import Table

from ..config.problems import ConfigError
from ..operator_client import CannotAsk, add_gateway_arguments, client
from .terminal import Terminal

_COLUMNS = ("endpoint", "pool", "engine", "health", "in flight", "TTFT", "a token", "why")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    add_gateway_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Returns the exit code: 0, or 1 if the gateway could not be asked."""
    try:
        endpoints = client(args).endpoints()
    except (CannotAsk, ConfigError) as error:
        print(error, file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(endpoints, indent=2))
    else:
        Terminal().print(_table(endpoints))
    return 0


def _table(endpoints: Iterable[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    for name in _COLUMNS:
        table.add_column(name, overflow="fold")
    for e in endpoints:
        engine = f"{e['engine']} {e['engine_version']}".strip()
        shown = (_ms(e["ttft_s"]), _ms(e["itl_s"]))
        table.add_row(e["id"], e["pool"], engine, e["health"], str(e["in_flight"]), *shown, e["reason"])
    return table


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.0f} ms"
