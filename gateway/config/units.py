"""Durations and sizes as a person writes them (``500ms``, ``256KiB``), to seconds and bytes and back."""

from __future__ import annotations

import re
from typing import Final

DURATION_PATTERN: Final = r"^\d+(\.\d+)?(ms|s|m|h)$"
SIZE_PATTERN: Final = r"^\d+(\.\d+)?(B|KB|MB|GB|KiB|MiB|GiB)$"

_NUMBER: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>\D*)", re.ASCII)
_UNITS_MS: Final = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_UNITS_BYTES: Final = {
    "GiB": 2**30,
    "MiB": 2**20,
    "KiB": 2**10,
    "GB": 10**9,
    "MB": 10**6,
    "KB": 10**3,
    "B": 1,
}


def parse_duration_s(text: str) -> float:
    """Returns the seconds of a duration such as ``500ms``, ``2s``, ``30m`` or ``1h``; a bare ``0`` needs no unit.

    Raises:
        ValueError: The text is no duration; the message says how to write one.
    """
    number, unit = _split(text, example="2s")
    if not unit:
        return 0.0
    if unit not in _UNITS_MS:
        raise ValueError("has an unknown unit: use ms, s, m or h, for example 2s")
    return number * _UNITS_MS[unit] / 1000


def parse_size_bytes(text: str) -> int:
    """Returns the bytes of a size such as ``512B``, ``256KiB`` or ``10MB``; a bare ``0`` needs no unit.

    Raises:
        ValueError: The text is no size; the message says how to write one.
    """
    number, unit = _split(text, example="64MiB")
    if not unit:
        return 0
    if unit not in _UNITS_BYTES:
        raise ValueError("has an unknown unit: use B, KB, MB, GB, KiB, MiB or GiB, for example 64MiB")
    return round(number * _UNITS_BYTES[unit])


def format_duration(duration_s: float) -> str:
    """Writes seconds, to the millisecond, in the largest unit of which they are two or more and whole.

    1800.0 is ``30m``, 60.0 is ``60s``, 1.5 is ``1500ms``.
    """
    duration_ms = round(duration_s * 1000)
    for unit, factor in _UNITS_MS.items():
        if duration_ms >= 2 * factor and duration_ms % factor == 0:
            return f"{duration_ms // factor}{unit}"
    return f"{duration_ms}ms"


def format_size(size_bytes: int) -> str:
    """Writes bytes in the largest unit that leaves a whole number: 262144 is ``256KiB``."""
    for unit, factor in _UNITS_BYTES.items():
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes}B"


def _split(text: str, *, example: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"must be a number with a unit, for example {example}")
    number, unit = float(match["number"]), match["unit"]
    if not unit and number != 0:
        raise ValueError(f"needs a unit, for example {example}")
    return number, unit
