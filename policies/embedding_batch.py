"""Which embedding requests may share one request to an engine.

An engine pads the inputs of a batch to the longest of them: a short one beside a long one costs as much as a second
long one. So the inputs of a batch are of a length, within a factor, and nobody waits for somebody's bulk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MOST_BODY_BYTES = 32_768
MOST_STRETCH = 4


class Extent(NamedTuple):
    """The size of a request, or of a batch of them.

    Attributes:
        inputs: How many; at least 1.
        tokens: Of all inputs, estimated.
        shortest_tokens: Of the shortest input; at least 1.
        longest_tokens: Of the longest one.
    """

    inputs: int
    tokens: int
    shortest_tokens: int
    longest_tokens: int

    @classmethod
    def of(cls, tokens: Sequence[int]) -> Extent:
        """Returns the extent of inputs with so many tokens each; there is at least one."""
        return cls(len(tokens), sum(tokens), min(tokens), max(tokens))

    def plus(self, other: Extent) -> Extent:
        """Returns the extent of both together."""
        return Extent(
            self.inputs + other.inputs,
            self.tokens + other.tokens,
            min(self.shortest_tokens, other.shortest_tokens),
            max(self.longest_tokens, other.longest_tokens),
        )


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The bounds of one batch.

    Attributes:
        inputs: Most inputs.
        tokens: Most tokens, estimated.
    """

    inputs: int
    tokens: int

    def may_wait(self, request: Extent, body_bytes: int) -> bool:
        """Whether a request may wait for others; a large one has nothing to gain from them and goes alone."""
        return request.inputs * 2 <= self.inputs and body_bytes <= MOST_BODY_BYTES and self._holds(request)

    def place(self, waiting: Iterable[Extent], request: Extent) -> int | None:
        """Returns the place of the first batch that can take the request too, or None: it begins a new one."""
        return next((i for i, batch in enumerate(waiting) if self._holds(batch.plus(request))), None)

    def is_full(self, batch: Extent) -> bool:
        """Whether a batch need not wait any longer."""
        return batch.inputs >= self.inputs or batch.tokens >= self.tokens

    def _holds(self, batch: Extent) -> bool:
        return (
            batch.inputs <= self.inputs
            and batch.tokens <= self.tokens
            and batch.longest_tokens <= batch.shortest_tokens * MOST_STRETCH
        )
