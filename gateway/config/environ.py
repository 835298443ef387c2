"""``${VARIABLE}`` and ``${VARIABLE:-default}`` in one value of the configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# An escape, a reference, or the start of something that looks like one.
_REFERENCE: Final = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\}|\$\{")


def expand(text: str, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """Fills in the variables of one value; ``$${`` becomes a literal ``${``.

    An empty variable counts as unset, so that a credential that failed to arrive is noticed. White space around
    a value that came from a variable is dropped: files and secret stores like to end in a newline.

    Returns:
        The value, and what is wrong with it: messages that name variables and never show a value.
    """
    wrong: list[str] = []
    filled = False

    def fill(match: re.Match[str]) -> str:
        nonlocal filled
        if match[0] == "$${":
            return "${"
        name, default = match["name"], match["default"]
        if name is None:
            wrong.append("has a ${ that begins no ${VARIABLE} or ${VARIABLE:-default}: write $${ for a literal ${")
            return ""
        filled = True
        value = environ.get(name, "")
        if value:
            return value
        if default is None:
            state = "is set but empty" if name in environ else "is not set"
            wrong.append(f"environment variable {name} {state}: set it, or write ${{{name}:-default}}")
            return ""
        return default.removeprefix(":-")

    expanded = _REFERENCE.sub(fill, text)
    return expanded.strip() if filled else expanded, wrong
