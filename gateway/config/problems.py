"""What is wrong with a configuration file, in words for the person who wrote it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake.

    Attributes:
        line: Counted from 1; None when the file itself is the problem.
        path: Dotted path of the offending key, as ``pools.llama.endpoints[0].url``; empty for the whole file.
        message: What is wrong and what to do; never shows a value that may be a credential.
        suggestion: What was probably meant: a key or a value; None when nothing is near.
    """

    line: int | None
    path: str
    message: str
    suggestion: str | None = None

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        meant = f', did you mean "{self.suggestion}"?' if self.suggestion else ""
        return f"{where}{self.message}{meant}"


class ConfigError(Exception):
    """A configuration that cannot be used.

    Attributes:
        source: The file's name as the person gave it.
        problems: All mistakes, by line; at least one.
    """

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """Returns one line per problem: ``weir.yaml:12: pools.x.timeout: unknown key, did you mean "timeouts"?``."""
        return [
            f"{self.source}: {problem}" if problem.line is None else f"{self.source}:{problem.line}: {problem}"
            for problem in self.problems
        ]


def dotted(location: Iterable[str | int]) -> str:
    """Writes the location of a key: ``("pools", "m", "endpoints", 0)`` is ``pools.m.endpoints[0]``."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text
