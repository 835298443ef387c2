"""The gateway reads a simulated engine's load while a stream is open there, whichever dialect it speaks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapters.engine_load import load_sources
from gateway.simulator.dialects import DIALECTS
from gateway.simulator.server import Settings
from tests.fakes.gateway import config, running_gateway
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import r0, request_bytes
from tests.gateway.simulator.dialect_calls import ENDLESS, settings
from tests.gateway.simulator.served import serve

CHAT = "/v1/chat/completions"
TELLING = [name for name in DIALECTS if load_sources(name)]
QUICK = {"health": {"interval": "10ms"}}


def test_those_that_tell_nothing_are_the_same_as_in_life() -> None:
    assert set(DIALECTS) - set(TELLING) == {"openai", "ollama"}


@pytest.mark.parametrize("dialect", TELLING)
async def test_an_open_stream_runs_and_the_next_one_waits(dialect: str) -> None:
    engine = Settings(dialect=dialect, models=("m",), pace=ENDLESS, context_tokens=1024)
    async with (
        serve(engine) as served,
        running_gateway(config(served.url, engine="auto", pool_options=QUICK)) as gw,
        gw.connect() as first,
        gw.connect() as second,
    ):

        async def until(running: int, waiting: int) -> dict[str, Any]:
            async with asyncio.timeout(WAIT_S):
                while True:
                    found: dict[str, Any] = (await gw.get("/weir/endpoints")).json()[0]
                    if (found["running"], found["waiting"]) == (running, waiting):
                        return found

        assert (await until(0, 0))["engine"] == dialect
        await first.send(request_bytes("POST", CHAT, r0()))
        await until(1, 0)
        await second.send(request_bytes("POST", CHAT, r0()))
        found = await until(1, 1)
        if dialect == "llamacpp":
            assert found["kv_usage_ratio"] is None
        else:
            assert 0 < found["kv_usage_ratio"] <= 1
        assert 0 <= found["sample_age_s"] < 10


@pytest.mark.parametrize("dialect", TELLING)
async def test_every_source_of_a_dialect_is_served(dialect: str) -> None:
    async with serve(settings(dialect)) as served:
        for source in load_sources(dialect):
            answer = await served.http.get(source.path)
            assert answer.status_code == 200, source.path
            load = source.read(answer.content)._asdict()
            expected = dict.fromkeys(source.tells, 0)
            if dialect == "llamacpp":
                expected.pop("kv_usage_ratio", None)
            assert {figure: value for figure, value in load.items() if value is not None} == expected
