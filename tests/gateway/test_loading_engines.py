"""An engine that loads its model takes nothing, has not failed, and serves as soon as it can; through real sockets."""

from __future__ import annotations

import pytest

from tests.fakes.endpoint_health import becomes, health_of
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0
from tests.fakes.scripted import Script, ScriptedUpstream, Step, chat_stream, end, eventually, head, json_answer

LOADING = json_answer({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, 503)
WELL: list[Step] = [head(200, "", length=0), end()]
QUICK = {"health": {"interval": "20ms", "timeout": "20s", "failures": 1, "eject": "1h", "eject_max": "1h"}}


@pytest.mark.parametrize(("engine", "path"), [("llamacpp", "/health"), ("sglang", "/ready"), ("openai", "/v1/models")])
async def test_probes_tell_that_it_loads(engine: str, path: str) -> None:
    told: list[Step] = list(LOADING)
    async with (
        ScriptedUpstream(chat_stream("loaded"), plain={path: told}) as u,
        ScriptedUpstream(chat_stream("other")) as other,
        running_gateway(config({"url": u.url, "engine": engine}, other.url, pool_options=QUICK)) as gw,
    ):
        await becomes(gw, "loading")
        had = len(u.requests)
        for _ in range(4):
            assert (await gw.post(r0())).content() == "other"
        assert len(u.requests) == had
        told[:] = WELL
        await becomes(gw, "healthy")
        assert {(await gw.post(r0())).content() for _ in range(2)} == {"loaded", "other"}
        assert await gw.total("weir_endpoint_transitions_total", to="ejected") == 0


async def test_a_refused_request_tells_it_before_the_next_probe() -> None:
    answer: list[Script] = [LOADING]
    rules = {"health": {"interval": "1h", "timeout": "20s"}}
    async with (
        ScriptedUpstream(lambda _: answer[0]) as u,
        ScriptedUpstream(chat_stream("other")) as other,
        running_gateway(config({"url": u.url, "engine": "llamacpp"}, other.url, pool_options=rules)) as gw,
    ):
        await eventually(lambda: len(u.probes) > 0)
        contents = [(await gw.post(r0())).content() for _ in range(6)]
        assert contents == ["other"] * 6
        assert len(u.requests) == 1
        assert await health_of(gw) == "loading"


async def test_a_pool_whose_only_engine_loads_says_so() -> None:
    async with (
        ScriptedUpstream(LOADING, plain={"/health": LOADING}) as u,
        running_gateway(config({"url": u.url, "engine": "llamacpp"}, pool_options=QUICK)) as gw,
    ):
        await becomes(gw, "loading")
        reply = await gw.post(r0())
        assert (reply.status, reply.error["code"]) == (503, "no_endpoint")
        assert "1 loading" in reply.error["message"]
        assert (await gw.get("/readyz")).status == 503
