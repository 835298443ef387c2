"""Programs as a user would start them: in a process of their own that knows nothing of the tests' surroundings."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from tests.live.real_engine import PATIENCE

ROOT = Path(__file__).parents[2]
CLIENTS_PYTHON = ROOT / ".venv-clients/bin/python"
WITHIN_S = 50.0 * PATIENCE  # below the deadline of every test, so that what the program said is seen


async def output_of(command: Sequence[str | Path], home: Path, **environ: str) -> str:
    """Returns what the program printed.

    Args:
        command: The program and its arguments.
        home: Its home directory, which holds no configuration of anybody.
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
    try:
        out, err = await asyncio.wait_for(process.communicate(), WITHIN_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    return out.decode()
