"""Vectors of texts: hashed words and letter triples, so texts that share them lie near each other."""

from __future__ import annotations

import re
from collections import Counter
from hashlib import blake2b
from math import sqrt

_WORD = re.compile(r"\w+")


def embed(text: str, dimensions: int) -> list[float]:
    """Returns a vector of length 1, the same for the same text."""
    vector = [0.0] * dimensions
    for word, times in Counter(_WORD.findall(text.lower()) or [""]).items():
        padded = f"<{word}>"
        for feature in (word, *(padded[i : i + 3] for i in range(len(padded) - 2))):
            digest = blake2b(feature.encode(), digest_size=32).digest()
            for at in range(0, 32, 4):
                number = int.from_bytes(digest[at : at + 4], "big")
                vector[(number >> 1) % dimensions] += times if number & 1 else -times
    length = sqrt(sum(value * value for value in vector))
    return [value / length for value in vector] if length else [1.0] + [0.0] * (dimensions - 1)
