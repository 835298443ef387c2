"""A terminal of a given width, and what a command of Weir's writes to it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def in_terminal(columns: int, *argv: str) -> list[str]:
    """Runs a command that ends with status 0; returns the lines that it drew, without colours."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", *argv],
        stdin=its, stdout=its, stderr=its, cwd=_ROOT, env={**environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(its)
    drawn = b""
    with open(ours, "rb", buffering=0) as terminal:
        try:
            while data := terminal.read(65_536):
                drawn += data
        except OSError:  # what Linux answers when nobody holds the other end any more
            pass
    assert process.wait() == 0, drawn.decode()
    return _STYLE.sub("", drawn.decode()).replace("\r", "").splitlines()
