"""Values of command-line options, with messages that say what to write."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ..config.units import parse_duration_s


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """Returns the reader of a whole number in these bounds."""
    bounds = f" from {low} to {high}" if high is not None else f", {low} or more"

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < low or (high is not None and int(text) > high):
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number{bounds}")
        return int(text)

    return read


port = whole(0, 65535)


def duration_s(text: str) -> float:
    """Reads a duration such as ``500ms``, in seconds."""
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from error
