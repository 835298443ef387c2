"""One engine as a child process: its address, its log, its end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

GRACE_S = 5.0
TAIL_LINES = 8
_ADDRESS = re.compile(r" on (http://127\.0\.0\.1:[1-9]\d*)\b")


class EngineFailed(Exception):
    """An engine did not start.

    Attributes:
        log_tail: The last lines of its log.
    """

    def __init__(self, reason: str, log_tail: Sequence[str]) -> None:
        super().__init__(reason)
        self.log_tail = tuple(log_tail)


class EngineProcess:
    """Runs ``python -m module arguments`` on a port that it picks itself and tells in its log.

    It has a process group of its own, so that Ctrl-C in the terminal does not reach it before Weir has let go, and it
    ends with this process (``tether``).

    Attributes:
        name: For people.
    """

    def __init__(self, name: str, module: str, arguments: Sequence[str], log_path: Path) -> None:
        self.name = name
        self._log_path = log_path
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                (sys.executable, "-m", module, *arguments),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Its exit status, minus the signal that ended it, or None while it runs."""
        return self._process.poll()

    @property
    def url(self) -> str | None:
        """Its base URL, or None before it has told it."""
        return address_in(self._log())

    def failed(self, reason: str) -> EngineFailed:
        return EngineFailed(f"{self.name} {reason}", tail(self._log()))

    def terminate(self) -> None:
        """Asks it to end, without waiting."""
        self._process.terminate()

    def stop(self, grace_s: float = GRACE_S) -> None:
        """Ends it and everything it started; returns when it is gone."""
        self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says the latter of an empty group
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _log(self) -> str:
        return self._log_path.read_text(errors="replace")


def address_in(log: str) -> str | None:
    """Returns the base URL that an engine's log tells, or None."""
    found = _ADDRESS.search(log)
    return found[1] if found else None


def tail(log: str, lines: int = TAIL_LINES) -> list[str]:
    """Returns the last lines that are not blank."""
    return [line.rstrip() for line in log.splitlines() if line.strip()][-lines:]
