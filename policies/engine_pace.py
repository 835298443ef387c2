"""How fast an endpoint answers when nothing is in its way, learnt from its answers: pure steps on a frozen state.

What an engine does not tell can be inferred from it: of a first token that came later than usual for such a prompt, the
excess was spent in the engine's queue.
"""

from __future__ import annotations

# A level follows a quicker answer by this share of the difference, and rises by at most the other share of itself: it
# stays near the quickest, however long other answers had to queue.
_DOWN, _UP = 0.3, 0.02
_TOKEN_SHARE = 0.1
SAMPLES_NEEDED = 3
_LARGEST = 24  # prompts of 16 million tokens and more are one size


def next_level_s(known_s: float, sample_s: float) -> float:
    """Returns when the first output comes that few others undercut, after one more answer.

    Args:
        known_s: The same before it.
        sample_s: From the attempt sent to its first output.
    """
    step_s = sample_s - known_s
    return known_s + (_DOWN * step_s if step_s < 0 else min(step_s, _UP * known_s))


def prompt_size(prompt_tokens: int) -> int:
    """Returns the class of prompts that are learnt from together: up to 1, 3, 7, 15 ... tokens."""
    return min(prompt_tokens.bit_length(), _LARGEST) if prompt_tokens > 0 else 1


def moving_mean(known_s: float | None, sample_s: float) -> float:
    """Returns the usual time between two tokens after one more answer."""
    return sample_s if known_s is None else known_s + _TOKEN_SHARE * (sample_s - known_s)
