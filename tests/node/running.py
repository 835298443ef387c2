"""Runs ``api_surface.test.mjs`` with the official OpenAI client for Node.js."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from tests.fakes.program import ended

HERE = Path(__file__).parent

NEEDS_NODE = (
    pytest.mark.node,
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is missing; on Debian: apt-get install nodejs"),
    pytest.mark.skipif(not (HERE / "node_modules/openai").exists(), reason="its packages are missing: make setup-node"),
)


async def run_node_tests(base_url: str, model: str, **settings: str) -> None:
    """Fails with what Node.js said.

    Args:
        base_url: Weir's, with ``/v1``.
        model: That it serves.
        settings: Those of ``api_surface.test.mjs``.
    """
    process = await asyncio.create_subprocess_exec(
        *("node", "--test", "--test-reporter=spec", "api_surface.test.mjs"),
        cwd=HERE,
        env=os.environ | {"WEIR_BASE_URL": base_url, "WEIR_MODEL": model} | settings,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await ended(process)
    assert process.returncode == 0, output.decode()
