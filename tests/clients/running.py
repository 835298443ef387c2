"""Programs as a user would start them: in a process of their own that knows nothing of the tests' surroundings."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from tests.fakes.program import WITHIN_S, ended

ROOT = Path(__file__).parents[2]
CLIENTS_PYTHON = ROOT / ".venv-clients/bin/python"


async def output_of(command: Sequence[str | Path], home: Path, *, within_s: float = WITHIN_S, **environ: str) -> str:
    """Returns what the program printed.

    Args:
        command: The program and its arguments.
        home: Its home directory, which holds no configuration of anybody.
        within_s: It has to end in that time.
        environ: Its whole environment, but for ``PATH`` and ``HOME``.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await ended(process, within_s)
    assert process.returncode == 0, err.decode()
    return out.decode()
