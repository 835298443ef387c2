"""Errors that outlive where they were raised."""

from __future__ import annotations


def let_go(error: BaseException) -> None:
    """Takes the frames from an error, and from those that it came of.

    They hold what ran, which often holds the error: garbage until a collection, and a collection holds every stream up.
    """
    left = [error]
    while left:
        one = left.pop()
        one.__traceback__ = None
        left += [came_of for came_of in (one.__cause__, one.__context__) if came_of and came_of.__traceback__]
