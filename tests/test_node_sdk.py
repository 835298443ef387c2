"""The official OpenAI client for Node.js against Weir, in front of simulated engines. ``live/`` has the real ones."""

from __future__ import annotations

import io
from pathlib import Path

from gateway.demo import engine_kind, engines
from gateway.demo.listening import configuration, listen
from tests.node.running import NEEDS_NODE, run_node_tests

ENGINES = 2

pytestmark = list(NEEDS_NODE)


async def test_every_call_works_over_simulated_engines(tmp_path: Path) -> None:
    kind = engine_kind.simulated()
    async with engines.running(kind, ENGINES, tmp_path) as urls:
        weir = await listen(configuration(kind, urls), 0, io.BytesIO(), print)
        try:
            await run_node_tests(f"http://127.0.0.1:{weir.port}/v1", kind.model, WEIR_EMBEDS="1")
        finally:
            await weir.stop()
