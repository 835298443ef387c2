"""What the configuration promises and this version does not do yet: refused by name, so that nobody relies on it."""

from __future__ import annotations

from typing import Final

KEYS: Final = frozenset(
    {
        ("keys",),
        ("limits",),
        ("pools", "*", "experiments"),
        ("pools", "*", "limits"),
        ("shared_state",),
    }
)
