"""How many files, and so connections, this process may have open."""

from __future__ import annotations

import resource
from contextlib import suppress

_SYSTEM_MAX = 1 << 20  # where "unlimited" is refused, as on macOS


def allow_many_files() -> None:
    """Raises the soft limit to the hard one: the usual 1024 is for programs that wait with ``select``.

    A stream takes two, the client's connection and the engine's.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (hard, _SYSTEM_MAX):
        if soft == hard or (soft != resource.RLIM_INFINITY and most != resource.RLIM_INFINITY and soft >= most):
            return
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            return
