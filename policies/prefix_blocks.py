"""A prompt's beginnings as hashes, from the bytes of its request: each is a block longer than the one before.

The engine's prompt begins with what stands first in ``messages`` or ``prompt``, so two requests whose bytes there begin
alike share what an engine's cache keeps. Nothing is parsed: a wrong guess of where the value begins costs a hit, and no
more. Python's own hash of bytes is keyed anew in each process: nobody outside can make two blocks collide, and what is
hashed here means nothing elsewhere.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Hashable
from itertools import accumulate
from struct import Struct

BLOCK_BYTES = 1024
"""The first ones; later ones are longer, so that what is shared is told within an eighth, and a long prompt has few."""
FINE_BYTES = 262_144
"""What comes after so much of a prompt is hashed by a hash that lets other threads run."""
COARSE_BLOCK_BYTES = 16_384
"""The longest, and all after ``FINE_BYTES``."""
SEARCH_BYTES = 262_144
"""A key is looked for in so much of a body."""
_SIZES = (*[1024] * 16, *[2048] * 8, *[4096] * 8, *[8192] * 8, *[COARSE_BLOCK_BYTES] * 8)
_ENDS = tuple(accumulate(_SIZES, initial=0))
_CUTS = tuple([Struct("".join([f"{size}s" for size in _SIZES[:blocks]])) for blocks in range(len(_SIZES) + 1)])
_FALSE_KEYS = 8
_colon = re.compile(rb"[ \t\r\n]*+:").match


def value_at(raw: bytes, key: str) -> int:
    """Returns where the value of a key begins in a JSON object; 0 if it is not found."""
    quoted, at = f'"{key}"'.encode(), 0
    for _ in range(_FALSE_KEYS):  # a string of the key's letters may be a value too
        at = raw.find(quoted, at, SEARCH_BYTES) + len(quoted)
        if at < len(quoted):
            return 0
        colon = _colon(raw, at)
        if colon is not None:
            return colon.end()
    return 0


def chain(raw: bytes, start: int, end: int, seed: Hashable = None) -> tuple[int, ...]:
    """Returns the hashes of the beginnings of ``raw[start:end]``, one for each whole block.

    Args:
        raw: A request's body.
        start: Where the prompt begins.
        end: Where it ends, at least about; what is left over of a block is not hashed.
        seed: What stands before it in the engine's prompt.
    """
    length = end - start
    if length < BLOCK_BYTES:
        return ()
    known = hash(seed)
    cut = _CUTS[bisect_right(_ENDS, length) - 1]
    blocks = [known := hash((known, block)) for block in cut.unpack_from(raw, start)]
    if length > FINE_BYTES:
        view = memoryview(raw)
        for at in range(start + FINE_BYTES, end - COARSE_BLOCK_BYTES + 1, COARSE_BLOCK_BYTES):
            known = hash((known, hashlib.sha256(view[at : at + COARSE_BLOCK_BYTES]).digest()))
            blocks.append(known)
    return tuple(blocks)


def covered_bytes(blocks: int) -> int:
    """Returns how many bytes so many leading blocks are."""
    if blocks < len(_ENDS):
        return _ENDS[blocks]
    return FINE_BYTES + (blocks - len(_SIZES)) * COARSE_BLOCK_BYTES
