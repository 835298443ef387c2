"""Numbers from keys, the same in every process and on every machine: what is spread by them stays where it is."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

SPAN = 1 << 64
MASK = SPAN - 1


def hash64(key: bytes) -> int:
    """Returns 64 bits that say nothing of the key."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "little")


@lru_cache(maxsize=4096)
def name64(name: str) -> int:
    """Returns an odd one of a name out of the configuration, kept for the next time."""
    return hash64(name.encode()) | 1


def mixed(key: int) -> int:
    """Returns 64 bits each of which depends on all of the key's (the end of SplitMix64)."""
    bits = key & MASK
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & MASK
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & MASK
    return bits ^ bits >> 31
