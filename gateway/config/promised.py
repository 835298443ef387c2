"""What the configuration promises and this version does not do yet: refused by name, so that nobody relies on it."""

from __future__ import annotations

from typing import Final

KEYS: Final = frozenset(
    {
        ("keys",),
        ("limits",),
        ("pools", "*", "experiments"),
        ("pools", "*", "limits"),
        ("pools", "*", "routing", "header"),
        ("pools", "*", "slo"),
        ("shared_state",),
    }
)


def instead_of(path: tuple[str, ...], value: str) -> str | None:
    """Returns what to write instead of a promised value (names and indexes in ``path`` as ``*``), or None."""
    if path == ("pools", "*", "routing", "policy"):
        return "use `policy: least_in_flight` until then"
    return None
