"""Which of the keys that rules name a client has. Only digests are held: a key is never at hand to be told."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256


class ClientKeys:
    """The keys that rules name, by number, from 1 on.

    Args:
        keys: Those of the configuration; each may stand there more than once.

    Attributes:
        any: Whether there is one.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._numbers: dict[bytes, int] = {}
        for key in keys:
            self._numbers.setdefault(_digest(key.encode()), len(self._numbers) + 1)
        self.any = bool(self._numbers)

    def number(self, key: str) -> int:
        """Returns the number of one of the keys."""
        return self._numbers[_digest(key.encode())]

    def sent(self, authorization: bytes | None) -> int:
        """Returns the number of the key in an ``Authorization: Bearer ...``; 0 if there is none, or it is no rule's."""
        scheme, _, key = (authorization or b"").partition(b" ")
        return self._numbers.get(_digest(key.strip()), 0) if scheme.lower() == b"bearer" else 0


def _digest(key: bytes) -> bytes:
    return sha256(key).digest()
