"""``weir drain``: an endpoint finishes what it has and gets nothing new, until it is readmitted."""

from __future__ import annotations

import argparse
import sys

from .config.problems import ConfigError
from .operator_client import CannotAsk, add_gateway_arguments, client


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="the endpoint, as `weir endpoints` lists it")
    add_gateway_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Returns the exit code: 0, or 1 if it could not be done."""
    try:
        known = client(args).order(args.id, "drain")
    except (CannotAsk, ConfigError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{known['id']} drains: it gets no new requests until `weir readmit {known['id']}`")
    return 0
