"""Words of others in our own log and terminal."""

from __future__ import annotations


def printable(text: str, limit: int) -> str:
    """Returns at most ``limit`` characters of a text, on one line: an engine's words must not look like log lines."""
    return "".join([char if char.isprintable() else " " for char in text[:limit]])
