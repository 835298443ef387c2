"""What a trace tells of the client's request and nothing else asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from policies.types import Header

# Numbers of a request's body of which its trace tells.
PARAMETERS = (
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "n",
)
_NUMBERS = (int, float)


class CallerFacts(NamedTuple):
    """What a trace tells of the client's request and nothing else asks for.

    Attributes:
        headers: Those that were asked for, by lower-case name, in the client's order.
        parameters: Numbers among the body's ``PARAMETERS``.
        key: Number of its key among those that rules name, 0 for none of them; the key itself is not kept.
    """

    http_version: str
    scheme: str
    headers: tuple[Header, ...]
    parameters: tuple[tuple[str, float], ...] = ()
    key: int = 0

    def asking(self, body: Mapping[str, object]) -> CallerFacts:
        """Returns the same with the parameters of a parsed body; the body itself is not kept."""
        named = sorted(body.keys() & PARAMETERS, key=PARAMETERS.index)
        told = [(name, value) for name in named if isinstance(value := body[name], _NUMBERS)]
        return CallerFacts(self.http_version, self.scheme, self.headers, tuple(told), self.key) if told else self
