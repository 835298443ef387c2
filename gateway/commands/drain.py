"""``weir drain``: an endpoint finishes what it has and gets nothing new, until it is readmitted."""

from __future__ import annotations

import argparse

from ..operator_client import add_order_arguments as add_arguments
from ..operator_client import give_order

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Returns the exit code."""
    return give_order(args, "drain", "{id} drains: it gets no new requests until `weir readmit {id}`")
