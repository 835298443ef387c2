"""Makes a named tuple of all its fields at once, for those that are made for every request.

A named tuple's own constructor is a Python function that takes each field as an argument: three times the work.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")


class _Make(Protocol):
    def __call__(self, kind: type[T], fields: tuple[Any, ...], /) -> T: ...


named: Final[_Make] = tuple.__new__  # type: ignore[assignment]
"""``named(Kind, fields)``; nobody looks whether they are all there."""
