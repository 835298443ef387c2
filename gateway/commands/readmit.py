"""``weir readmit``: an endpoint that was drained or ejected takes requests again, at once."""

from __future__ import annotations

import argparse

from ..operator_client import add_order_arguments as add_arguments
from ..operator_client import give_order

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Returns the exit code."""
    return give_order(args, "readmit", "{id} takes requests")
