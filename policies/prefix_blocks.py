"""A prompt's beginnings as hashes, from the bytes of its request: each is a block longer than the one before.

The engine's prompt begins with what stands first in ``messages`` or ``prompt``, so two requests whose bytes there begin
alike share what an engine's cache keeps. Nothing is parsed: a wrong guess of where the value begins costs a hit, and no
more. Python's own hash of bytes is keyed anew in each process: nobody outside can make two blocks collide, and what is
hashed here means nothing elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable

BLOCK_BYTES = 1024
FINE_BYTES = 262_144
"""What comes after so much of a prompt is hashed in coarse blocks, by a hash that lets other threads run."""
COARSE_BLOCK_BYTES = 16_384
SEARCH_BYTES = 262_144
"""A key is looked for in so much of a body."""
_FINE_BLOCKS = FINE_BYTES // BLOCK_BYTES
_FALSE_KEYS = 8
_BLANKS = b" \t\r\n"


def value_at(raw: bytes, key: str) -> int:
    """Returns where the value of a key begins in a JSON object; 0 if it is not found."""
    quoted = b'"%b"' % key.encode()
    at = raw.find(quoted, 0, SEARCH_BYTES)
    for _ in range(_FALSE_KEYS):  # a string of the key's letters may be a value too
        if at < 0:
            return 0
        at += len(quoted)
        after = at
        while raw[after : after + 1] in (b" ", b"\t", b"\r", b"\n"):
            after += 1
        if raw[after : after + 1] == b":":
            return after + 1
        at = raw.find(quoted, at, SEARCH_BYTES)
    return 0


def chain(raw: bytes, start: int, end: int, seed: Hashable = None) -> tuple[int, ...]:
    """Returns the hashes of the beginnings of ``raw[start:end]``, one for each whole block.

    Args:
        raw: A request's body.
        start: Where the prompt begins.
        end: Where it ends, at least about; what is left over of a block is not hashed.
        seed: What stands before it in the engine's prompt.
    """
    known = hash(seed)
    blocks: list[int] = []
    fine_end = min(end, start + FINE_BYTES)
    for at in range(start, fine_end - BLOCK_BYTES + 1, BLOCK_BYTES):
        known = hash((known, raw[at : at + BLOCK_BYTES]))
        blocks.append(known)
    if end > fine_end:
        view = memoryview(raw)
        for at in range(fine_end, end - COARSE_BLOCK_BYTES + 1, COARSE_BLOCK_BYTES):
            known = hash((known, hashlib.sha256(view[at : at + COARSE_BLOCK_BYTES]).digest()))
            blocks.append(known)
    return tuple(blocks)


def covered_bytes(blocks: int) -> int:
    """Returns how many bytes so many leading blocks are."""
    coarse = max(blocks - _FINE_BLOCKS, 0)
    return (blocks - coarse) * BLOCK_BYTES + coarse * COARSE_BLOCK_BYTES
