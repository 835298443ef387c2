"""What the operator says of an endpoint: drained it gets nothing new, whatever its health; readmitted it serves."""

from __future__ import annotations

import pytest

from tests.fakes.endpoint_health import becomes, health_of, listed
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import Reply, r0, request_bytes
from tests.fakes.scripted import ScriptedUpstream, chat_stream, hang, head, json_answer, role, rst, tok

ADMIN = [("authorization", "Bearer t0ken")]
QUICK = {"health": {"interval": "10ms", "timeout": "20s", "eject": "1h", "eject_max": "1h"}}


async def order(gw: RunningGateway, id: str, word: str, headers: list[tuple[str, str]] | None = None) -> Reply:
    return await gw.post({}, f"/weir/endpoints/{id}/{word}", headers or [])


async def test_a_drained_endpoint_gets_nothing_new_until_it_is_readmitted() -> None:
    async with (
        ScriptedUpstream(chat_stream("one")) as one,
        ScriptedUpstream(chat_stream("two")) as two,
        running_gateway(config(one.url, two.url, pool_options=QUICK)) as gw,
    ):
        reply = await order(gw, "m-0", "drain")
        assert reply.status == 200
        assert (reply.json()["id"], reply.json()["health"]) == ("m-0", "draining")
        probes = len(one.probes)
        while len(one.probes) < probes + 4:
            assert (await gw.post(r0())).content() == "two"
        assert [e["health"] for e in await listed(gw)] == ["draining", "healthy"]
        metrics = await gw.metrics()
        assert metrics.total("weir_endpoint_healthy", endpoint="m-0") == 0
        assert metrics.total("weir_endpoint_transitions_total", endpoint="m-0", to="draining") == 1
        assert (await order(gw, "m-0", "readmit")).json()["health"] == "healthy"
        assert {(await gw.post(r0())).content() for _ in range(2)} == {"one", "two"}


async def test_what_runs_on_a_drained_endpoint_goes_on() -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), role(), tok("a"), hang()]) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", "/v1/chat/completions", r0()))
        await client.read_until(b'"content":"a"')
        assert (await order(gw, "m-0", "drain")).json()["in_flight"] == 1
        assert (await gw.post(r0())).status == 503
        assert await gw.total("weir_endpoint_in_flight") == 1
        assert not u.last.left.is_set()


@pytest.mark.parametrize("words", [("readmit",), ("drain", "readmit")])
async def test_one_that_is_readmitted_need_not_wait_for_what_its_engine_asked_for(words: tuple[str, ...]) -> None:
    later = json_answer({"error": {"message": "later"}}, 429, ("retry-after", "60"))
    async with (
        ScriptedUpstream(later, *[chat_stream("one")] * 8) as one,
        ScriptedUpstream(chat_stream("two")) as two,
        running_gateway(config(one.url, two.url, pool_options=QUICK)) as gw,
    ):
        assert {(await gw.post(r0())).content() for _ in range(4)} == {"two"}
        for word in words:
            await order(gw, "m-0", word)
        assert {(await gw.post(r0())).content() for _ in range(2)} == {"one", "two"}


async def test_the_last_endpoint_can_be_drained_and_requests_are_told() -> None:
    async with ScriptedUpstream(chat_stream()) as u, running_gateway(config(u.url)) as gw:
        await order(gw, "m-0", "drain")
        reply = await gw.post(r0())
        assert (reply.status, reply.error["code"]) == (503, "no_endpoint")
        assert "1 draining" in reply.error["message"]
        assert (await gw.get("/readyz")).status == 503
        await order(gw, "m-0", "readmit")
        assert (await gw.post(r0())).done


async def test_readmit_brings_an_ejected_endpoint_back_at_once() -> None:
    failing = [True]
    async with (
        ScriptedUpstream(lambda _: [rst()] if failing[0] else chat_stream("back")) as u,
        ScriptedUpstream(chat_stream("other")) as other,
        running_gateway(config(u.url, other.url, pool_options=QUICK)) as gw,
    ):
        await becomes(gw, "ejected", meanwhile=lambda: gw.post(r0()))
        failing[0] = False
        assert (await order(gw, "m-0", "readmit")).json()["health"] == "healthy"
        assert {(await gw.post(r0())).content() for _ in range(2)} == {"back", "other"}


@pytest.mark.parametrize("id", ["a/b:c@d+e", "a%2Fb:c@d+e", "x/drain"])
async def test_any_id_can_be_named(id: str) -> None:
    named = id.replace("%2F", "/")
    async with ScriptedUpstream(chat_stream()) as u, running_gateway(config({"url": u.url, "id": named})) as gw:
        assert (await order(gw, id, "drain")).json()["id"] == named


async def test_an_unknown_endpoint_is_told_with_those_there_are() -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        reply = await order(gw, "nobody", "drain")
        assert (reply.status, reply.error["code"]) == (404, "unknown_endpoint")
        assert "m-0" in reply.error["message"]


async def test_only_a_post_gives_orders() -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        reply = await gw.get("/weir/endpoints/m-0/drain")
        assert (reply.status, reply.header("allow")) == (405, "POST")
        assert await health_of(gw) == "healthy"


async def test_the_token_is_asked_for() -> None:
    async with running_gateway(config("http://127.0.0.1:9", admin={"token": "t0ken"})) as gw:
        assert (await order(gw, "m-0", "drain")).status == 401
        assert (await order(gw, "m-0", "drain", ADMIN)).json()["health"] == "draining"


async def test_no_web_page_gives_orders_without_the_token() -> None:
    page = [("origin", "https://evil.example")]
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        assert (await order(gw, "m-0", "drain", page)).status == 403
        assert await health_of(gw) == "healthy"
    async with running_gateway(config("http://127.0.0.1:9", admin={"token": "t0ken"})) as gw:
        assert (await order(gw, "m-0", "drain", [*page, *ADMIN])).status == 200


async def test_each_endpoint_tells_how_fast_it_answers() -> None:
    async with ScriptedUpstream(chat_stream("abc")) as u, running_gateway(config(u.url)) as gw:
        (before,) = await listed(gw)
        assert (before["limit"], before["ttft_s"], before["itl_s"]) == (None, None, None)
        await gw.post(r0())
        (after,) = await listed(gw)
        assert after["ttft_s"] > 0
        assert after["itl_s"] >= 0
