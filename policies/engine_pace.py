"""How fast an endpoint answers when nothing is in its way, learnt from its answers: pure steps on a frozen state.

What an engine does not tell can be inferred from it: of a first token that came later than usual for such a prompt, the
excess was spent in the engine's queue.
"""

from __future__ import annotations

from typing import NamedTuple

# A level follows a quicker answer by this share of the difference, and rises by at most the other share of itself: it
# stays near the quickest, however long other answers had to queue.
_DOWN, _UP = 0.3, 0.02
_TOKEN_SHARE = 0.1
SAMPLES_NEEDED = 3
_LARGEST = 24  # prompts of 16 million tokens and more are one size


class Level(NamedTuple):
    """A duration that few answers undercut; None before the first."""

    value_s: float | None = None
    samples: int = 0

    def after(self, sample_s: float) -> Level:
        if self.value_s is None:
            return Level(sample_s, 1)
        step_s = sample_s - self.value_s
        step_s = _DOWN * step_s if step_s < 0 else min(step_s, _UP * self.value_s)
        return Level(self.value_s + step_s, self.samples + 1)


class EnginePace(NamedTuple):
    """What is known of one endpoint and model.

    Attributes:
        prefill: From the attempt sent to its first output, for prompts up to 1, 3, 7, 15 ... tokens.
        token_s: Between two tokens; None before the first answer.
    """

    prefill: tuple[Level, ...] = (Level(),) * (_LARGEST + 1)
    token_s: float | None = None

    def answered(self, prompt_tokens: int, first_output_s: float, token_s: float | None) -> EnginePace:
        """Returns what is known after one more answer.

        Args:
            prompt_tokens: Of its request, as far as they were not cached.
            first_output_s: From the attempt sent to its first output.
            token_s: Its mean time per token after the first, None without one.
        """
        size = _size(prompt_tokens)
        levels = (*self.prefill[:size], self.prefill[size].after(first_output_s), *self.prefill[size + 1 :])
        known_s = self.token_s
        if token_s is not None:
            known_s = token_s if known_s is None else known_s + _TOKEN_SHARE * (token_s - known_s)
        return EnginePace(levels, known_s)

    def expected_prefill_s(self, prompt_tokens: int) -> float | None:
        """Returns when the first output of such a prompt comes if it need not queue; None while too few have come."""
        level = self.prefill[_size(prompt_tokens)]
        return level.value_s if level.samples >= SAMPLES_NEEDED else None


def _size(prompt_tokens: int) -> int:
    return min(max(prompt_tokens, 1).bit_length(), _LARGEST)
