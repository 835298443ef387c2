"""The official OpenAI client for Node.js against Weir: ``tests/node/api_surface.test.mjs``, over both engines."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
from pathlib import Path

import pytest

from gateway.demo import engine_kind, engines
from gateway.demo.engine_kind import EngineKind
from gateway.demo.installation import NotInstalled, find_model
from gateway.demo.listening import configuration, listen

NODE_TESTS = Path(__file__).parent / "node"
INSTALLED = (NODE_TESTS / "node_modules/openai").exists()
ENGINES = 2
WITHIN_S = 50.0  # below the deadline of every test, so that what Node.js said is seen

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is missing; on Debian: apt-get install nodejs"),
    pytest.mark.skipif(not INSTALLED, reason="its packages are missing: make setup-node"),
]


async def run_node_tests(kind: EngineKind, logs: Path, **settings: str) -> None:
    async with engines.running(kind, ENGINES, logs) as urls:
        weir = await listen(configuration(kind, urls), 0, io.BytesIO(), print)
        try:
            base_url = f"http://127.0.0.1:{weir.port}/v1"
            process = await asyncio.create_subprocess_exec(
                *("node", "--test", "--test-reporter=spec", "api_surface.test.mjs"),
                cwd=NODE_TESTS,
                env=os.environ | {"WEIR_BASE_URL": base_url, "WEIR_MODEL": kind.model} | settings,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                output, _ = await asyncio.wait_for(process.communicate(), WITHIN_S)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        finally:
            await weir.stop()
    assert process.returncode == 0, output.decode()


async def test_every_call_works_over_simulated_engines(tmp_path: Path) -> None:
    await run_node_tests(engine_kind.simulated(), tmp_path, WEIR_EMBEDS="1")


@pytest.mark.engine
async def test_every_call_works_over_real_engines(tmp_path: Path) -> None:
    try:
        kind = engine_kind.llamacpp(find_model(), ENGINES)
    except NotInstalled as error:
        pytest.skip(str(error))
    await run_node_tests(kind, tmp_path, WEIR_REAL="1")
