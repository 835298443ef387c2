"""After an ejection one request tries the endpoint, through real sockets: no more, and it decides."""

from __future__ import annotations

import asyncio

from tests.fakes.endpoint_health import becomes, health_of
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import r0
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    chat_stream,
    done,
    end,
    eventually,
    fin,
    gate,
    head,
    json_answer,
    role,
    rst,
    tok,
)

QUICK = {"health": {"interval": "20ms", "timeout": "20s", "eject": "500ms", "eject_max": "1h"}}


async def until_half_open(gw: RunningGateway) -> None:
    await becomes(gw, "ejected", meanwhile=lambda: gw.post(r0()))
    await becomes(gw, "half_open")


class Ailing:
    """An engine that resets until it is well, and then answers when the test lets it."""

    def __init__(self) -> None:
        self.well = False
        self.answers = asyncio.Event()

    def script(self, _: Request) -> Script:
        if not self.well:
            return [rst()]
        return [head(200, "sse"), role(), gate(self.answers), tok("back"), fin("stop"), done(), end()]


async def test_one_request_tries_it_while_the_others_go_elsewhere() -> None:
    ailing = Ailing()
    async with (
        ScriptedUpstream(ailing.script) as u,
        ScriptedUpstream(chat_stream("other")) as other,
        running_gateway(config(u.url, other.url, pool_options=QUICK)) as gw,
    ):
        await until_half_open(gw)
        ailing.well = True
        had = len(u.requests)
        posted = [asyncio.ensure_future(gw.post(r0())) for _ in range(12)]
        await eventually(lambda: sum(task.done() for task in posted) == 11)
        assert len(u.requests) == had + 1
        assert await health_of(gw) == "half_open"
        for _ in range(5):
            assert (await gw.post(r0())).content() == "other"
        ailing.answers.set()
        contents = [reply.content() for reply in await asyncio.gather(*posted)]
        assert sorted(contents) == ["back", *["other"] * 11]
        assert await health_of(gw) == "healthy"
        assert await gw.total("weir_endpoint_transitions_total", endpoint="m-0", to="half_open") == 1


async def test_a_trial_that_fails_costs_its_client_nothing_and_ejects_again() -> None:
    ailing = Ailing()
    async with (
        ScriptedUpstream(ailing.script) as u,
        ScriptedUpstream(chat_stream("other")) as other,
        running_gateway(config(u.url, other.url, pool_options=QUICK)) as gw,
    ):
        for ejections in (2, 3):
            await until_half_open(gw)
            had = len(u.requests)
            await becomes(gw, "ejected", meanwhile=lambda: served_elsewhere(gw))
            assert len(u.requests) == had + 1
            assert await gw.total("weir_endpoint_transitions_total", endpoint="m-0", to="ejected") == ejections


async def served_elsewhere(gw: RunningGateway) -> None:
    assert (await gw.post(r0())).content() == "other"


async def test_a_client_error_on_trial_decides_nothing() -> None:
    refuses = json_answer({"error": {"message": "too long", "code": 400}}, 400)
    answer: list[Script] = [[rst()]]
    async with (
        ScriptedUpstream(lambda _: answer[0]) as u,
        ScriptedUpstream(chat_stream("other")) as other,
        running_gateway(config(u.url, other.url, pool_options=QUICK)) as gw,
    ):
        await until_half_open(gw)
        answer[0] = refuses
        while (await gw.post(r0())).status != 400:
            pass
        assert await health_of(gw) == "half_open"
        answer[0] = chat_stream("back")
        while (await gw.post(r0())).content() != "back":
            pass
        assert await health_of(gw) == "healthy"
