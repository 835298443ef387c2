"""The ``OTEL_*`` variables: a bad value is told where it is read, by name, and with what is used instead."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from gateway.printable import printable

log = logging.getLogger("weir.tracing")

_SHOWN_CHARS = 100


def text(environ: Mapping[str, str], name: str) -> str:
    """Returns what the variable says, "" if nothing."""
    return environ.get(name, "").strip()


def of_traces(environ: Mapping[str, str], name: str) -> str:
    """Returns the full name of an OTLP variable: of the one for traces if that says something, else for all signals."""
    own = f"OTEL_EXPORTER_OTLP_TRACES_{name}"
    return own if text(environ, own) else f"OTEL_EXPORTER_OTLP_{name}"


def number(environ: Mapping[str, str], name: str, otherwise: float, *, least: float, most: float = math.inf) -> float:
    """Returns a finite number in these bounds; ``otherwise`` if there is none."""
    said = text(environ, name)
    try:
        value = float(said or otherwise)
    except ValueError:
        value = math.nan
    if math.isfinite(value) and least <= value <= most:
        return value
    bounds = f"from {least:g} to {most:g}" if most < math.inf else f"of {least:g} or more"
    _tell(name, said, f"is no number {bounds}", f"{otherwise:g}")
    return otherwise


def count(environ: Mapping[str, str], name: str, otherwise: int, *, most: int | None = None) -> int:
    """Returns a whole number above 0, and not above ``most``; ``otherwise`` or ``most`` if there is none."""
    said = text(environ, name)
    value = otherwise
    if said.isascii() and said.isdigit() and int(said) > 0:
        value = int(said)
    elif said:
        _tell(name, said, "is no whole number above 0", str(otherwise))
    if most is None or value <= most:
        return value
    if value != otherwise:
        _tell(name, said, f"is more than {most}", str(most))
    return most


def choice(environ: Mapping[str, str], name: str, values: Sequence[str], otherwise: str) -> str:
    """Returns one of the values, in lower case; ``otherwise`` if the variable says nothing or another."""
    said = text(environ, name)
    if not said or said.lower() in values:
        return said.lower() or otherwise
    _tell(name, said, f"is none of {', '.join(values)}", otherwise)
    return otherwise


def is_url(value: str) -> bool:
    """Whether it can be posted to."""
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def tell_no_url(name: str, said: str, instead: str) -> None:
    _tell(name, said.rpartition("@")[2], "is no URL that begins with http:// or https:// and names a host", instead)


def _tell(name: str, said: str, wrong: str, instead: str) -> None:
    log.warning("%s=%s %s; %s is used", name, printable(said, _SHOWN_CHARS), wrong, instead)
