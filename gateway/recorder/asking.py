"""What a question to the recorder has in common, whoever asks it: ``weir explain`` or ``/weir/requests``."""

from __future__ import annotations

from typing import Final

DEFAULT_SINCE: Final = "15m"
_SHOWN_CHARS: Final = 200


def not_recorded(name: str) -> str:
    """Returns what is said of an id that no record has."""
    return f"no request {name[:_SHOWN_CHARS]!r} is recorded: it is too old, still runs, or never came"
