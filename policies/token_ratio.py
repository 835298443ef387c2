"""How many tokens a prompt's bytes are: a moving ratio, corrected by what engines count. One pure step an answer."""

from __future__ import annotations

from typing import NamedTuple

from .named_tuples import named

FIRST_RATIO = 0.25
LEAST_RATIO = 0.01
MOST_RATIO = 2.0
"""A byte is rarely more than a token; what the engine puts around a short prompt comes on top."""
_KEEP = 0.98
# What is believed before any answer weighs as much as a prompt of a thousand tokens.
_FIRST_BYTES = 4000.0


class TokenRatio(NamedTuple):
    """Fading sums, so that a long prompt counts for more than a short one.

    Attributes:
        tokens: As the engines counted them.
        bytes: Of the same prompts.
    """

    tokens: float = _FIRST_BYTES * FIRST_RATIO
    bytes: float = _FIRST_BYTES

    @property
    def tokens_per_byte(self) -> float:
        """Within the bounds, for every count that was learnt is."""
        return self.tokens / self.bytes

    def learnt(self, text_bytes: int, prompt_tokens: int) -> TokenRatio:
        """Returns it after an answer; a count that no prompt of so many bytes can have teaches nothing."""
        if not text_bytes * LEAST_RATIO <= prompt_tokens <= text_bytes * MOST_RATIO or not prompt_tokens:
            return self
        tokens, known_bytes = self
        return named(TokenRatio, (_KEEP * tokens + prompt_tokens, _KEEP * known_bytes + text_bytes))


NOTHING_LEARNT = TokenRatio()
