"""How to get what Weir does without until it is asked for: the extras of its package, which is on no index."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """Returns the command for one of the extras in ``pyproject.toml``, and where to run it."""
    return f"run .venv/bin/pip install -e '.[{extra}]' in the folder of Weir's sources"
