"""The official OpenAI client for Node.js against real engines behind Weir."""

from __future__ import annotations

import pytest

from tests.live.real_engine import RealEngines
from tests.node.running import NEEDS_NODE, run_node_tests

pytestmark = [pytest.mark.engine, *NEEDS_NODE]


async def test_every_call_works_over_real_engines(base_url: str, real_engines: RealEngines) -> None:
    await run_node_tests(base_url, real_engines.kind.model, WEIR_REAL="1")
