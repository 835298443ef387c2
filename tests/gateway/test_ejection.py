"""Endpoints taken out and put back, through real sockets: by failed requests and by probes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import r0
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    Step,
    chat_stream,
    end,
    eventually,
    head,
    json_answer,
    pause,
    rst,
    unused_port,
)

FAILED: object = {"error": {"message": "engine trouble", "code": 500}}
WELL: list[Step] = [head(200, "", length=0), end()]


def health(**changes: object) -> dict[str, Any]:
    """Rules of a pool: probed often, out for long, unless the test says otherwise."""
    return {"health": {"interval": "20ms", "timeout": "20s", "eject": "1h", "eject_max": "1h", **changes}}


async def states(gw: RunningGateway) -> list[str]:
    return [e["health"] for e in (await gw.get("/weir/endpoints")).json()]


async def until(gw: RunningGateway, condition: Callable[[list[str]], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition(found := await states(gw)):
        assert time.monotonic() < deadline_s, found


REDIRECT: list[Step] = [head(307, "", ("Location", "https://elsewhere.test/"), length=0), end()]


@pytest.mark.parametrize("failing", [json_answer(FAILED, 500), [rst()], [head(200, "sse"), rst()], REDIRECT])
async def test_failed_requests_in_a_row_eject_although_probes_go_well(failing: Script) -> None:
    async with (
        ScriptedUpstream(failing) as bad,
        ScriptedUpstream(chat_stream()) as good,
        running_gateway(config(bad.url, good.url, pool_options=health())) as gw,
    ):
        replies = [await gw.post(r0()) for _ in range(12)]
        assert all(reply.done for reply in replies)
        assert len(bad.requests) == 3
        assert await states(gw) == ["ejected", "healthy"]
        assert await gw.total("weir_endpoint_healthy", endpoint="m-0") == 0
        assert "m-0 ejected" in gw.logs.text


@pytest.mark.parametrize("status", [400, 404, 422, 429, 503])
async def test_the_clients_errors_and_a_busy_engine_eject_nobody(status: int) -> None:
    async with (
        ScriptedUpstream(json_answer(FAILED, status)) as u,
        running_gateway(config(u.url, u.url + "/", pool_options=health(failures=1))) as gw,
    ):
        for _ in range(4):
            await gw.post(r0())
        assert await states(gw) == ["healthy", "healthy"]


async def test_a_redirect_of_a_path_that_a_client_made_up_ejects_nobody() -> None:
    async with (
        ScriptedUpstream(REDIRECT) as u,
        running_gateway(config(u.url, u.url + "/", pool_options=health(failures=1))) as gw,
    ):
        for _ in range(4):
            assert (await gw.post({"model": "m"}, path="/v1/made/up")).status == 502
        assert await states(gw) == ["healthy", "healthy"]


async def test_an_ejected_endpoint_comes_back_by_a_request_when_its_time_is_over_and_a_probe_goes_well() -> None:
    failing = [True]
    async with (
        ScriptedUpstream(lambda _: [rst()] if failing[0] else chat_stream("back")) as u,
        ScriptedUpstream(chat_stream("other")) as other,
        running_gateway(config(u.url, other.url, pool_options=health(eject="150ms"))) as gw,
    ):
        while await states(gw) != ["ejected", "healthy"]:
            await gw.post(r0())
        failing[0] = False
        await until(gw, lambda found: found == ["half_open", "healthy"])
        while await states(gw) != ["healthy", "healthy"]:
            assert (await gw.post(r0())).done
        assert {(await gw.post(r0())).content() for _ in range(2)} == {"back", "other"}


async def test_it_does_not_come_back_while_its_probes_fail() -> None:
    well: list[Step] = list(WELL)
    async with (
        ScriptedUpstream([rst()], plain={"/health": well}) as u,
        ScriptedUpstream(chat_stream()) as other,
        running_gateway(config(u.url, other.url, pool_options=health(eject="40ms"))) as gw,
    ):
        well[:] = json_answer({}, 503)
        await until(gw, lambda found: found == ["ejected", "healthy"])
        probes = len(u.probes)
        while len(u.probes) < probes + 6:
            assert await states(gw) == ["ejected", "healthy"]
        well[:] = WELL
        await until(gw, lambda found: found == ["healthy", "healthy"])


@pytest.mark.parametrize("how", ["refused", "503", "slow"])
async def test_probes_that_fail_eject_without_a_request(how: str) -> None:
    sick: dict[str, Script] = {"503": json_answer({}, 503), "slow": [pause(60), *WELL], "refused": WELL}
    async with (
        ScriptedUpstream(chat_stream(), plain={"/health": sick[how]}) as u,
        ScriptedUpstream(chat_stream()) as other,
    ):
        url = f"http://127.0.0.1:{unused_port()}" if how == "refused" else u.url
        rules = health(timeout="1s") if how == "slow" else health()
        async with running_gateway(config(url, other.url, pool_options=rules)) as gw:
            await until(gw, lambda found: found == ["ejected", "healthy"])
            replies = [await gw.post(r0()) for _ in range(3)]
            assert all(reply.done for reply in replies)
            assert len(other.requests) == 3


@pytest.mark.parametrize("status", [404, 401, 405])
async def test_an_engine_without_the_probes_path_lives(status: int) -> None:
    async with (
        ScriptedUpstream(chat_stream(), plain={"/health": json_answer({}, status)}) as u,
        ScriptedUpstream(chat_stream()) as other,
        running_gateway(config(u.url, other.url, pool_options=health(failures=1))) as gw,
    ):
        while len(u.probes) < 5:
            assert await states(gw) == ["healthy", "healthy"]


async def test_the_last_healthy_endpoint_stays_by_requests() -> None:
    async with (
        ScriptedUpstream([rst()]) as a,
        ScriptedUpstream([rst()]) as b,
        running_gateway(config(a.url, b.url, pool_options=health(failures=1))) as gw,
    ):
        for _ in range(4):
            assert (await gw.post(r0())).status == 502
        assert (await states(gw)).count("healthy") == 1


async def test_the_last_healthy_endpoint_stays_by_probes() -> None:
    urls = [f"http://127.0.0.1:{unused_port()}" for _ in range(3)]
    async with running_gateway(config(*urls, pool_options=health(failures=1))) as gw:
        await until(gw, lambda found: found.count("ejected") == 2)
        assert (await states(gw)).count("healthy") == 1


async def test_one_that_is_well_again_is_called_back_when_the_last_one_dies() -> None:
    """Its ejection would last for an hour."""
    failing = ["a"]
    async with (
        ScriptedUpstream(lambda _: [rst()] if "a" in failing else chat_stream("a")) as a,
        ScriptedUpstream(lambda _: [rst()] if "b" in failing else chat_stream("b")) as b,
        running_gateway(config(a.url, b.url, pool_options=health())) as gw,
    ):
        while await states(gw) != ["ejected", "healthy"]:
            await gw.post(r0())
        failing[:] = ["b"]
        while await states(gw) != ["healthy", "ejected"]:
            await gw.post(r0())
        assert (await gw.post(r0())).content() == "a"


@pytest.mark.parametrize("well_first", [True, False])
@pytest.mark.parametrize("out", ["drained", "loading"])
async def test_one_that_is_well_again_is_called_back_when_the_last_one_is_out(out: str, well_first: bool) -> None:
    a_says: list[Step] = [*WELL]
    b_says: list[Step] = [*WELL]
    loading = json_answer({"error": {"message": "Loading model"}}, 503)
    async with (
        ScriptedUpstream(chat_stream("a"), plain={"/health": a_says}) as a,
        ScriptedUpstream(chat_stream("b"), plain={"/health": b_says}) as b,
        running_gateway(config(a.url, b.url, pool_options=health(failures=1))) as gw,
    ):
        a_says[:] = json_answer({}, 500)
        await until(gw, lambda found: found == ["ejected", "healthy"])
        if well_first:
            a_says[:] = WELL
            probes = len(a.probes)
            await eventually(lambda: len(a.probes) > probes + 2)
            assert await states(gw) == ["ejected", "healthy"]
        if out == "loading":
            b_says[:] = loading
        else:
            await gw.post({}, "/weir/endpoints/m-1/drain")
        await until(gw, lambda found: found[1] == ("loading" if out == "loading" else "draining"))
        a_says[:] = WELL
        await until(gw, lambda found: found[0] == "healthy")
        assert (await gw.post(r0())).content() == "a"


async def test_a_lone_endpoint_serves_again_as_soon_as_it_can() -> None:
    failing = [True]
    async with (
        ScriptedUpstream(lambda _: [rst()] if failing[0] else chat_stream()) as u,
        running_gateway(config(u.url, pool_options=health(failures=1))) as gw,
    ):
        for _ in range(5):
            assert (await gw.post(r0())).status == 502
        failing[0] = False
        assert (await gw.post(r0())).done


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_credential_ejects_at_once_and_tells_the_operator(status: int) -> None:
    async with (
        ScriptedUpstream(json_answer(FAILED, status)) as u,
        ScriptedUpstream(chat_stream()) as other,
        running_gateway(config(u.url, other.url, pool_options=health())) as gw,
    ):
        statuses = [(await gw.post(r0())).status for _ in range(8)]
        assert statuses.count(502) == 1
        assert statuses.count(200) == 7
        assert await states(gw) == ["ejected", "healthy"]
        assert "api_key" in gw.logs.text


CALLER = [("authorization", "Bearer caller")]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_credential_of_the_clients_own_that_is_refused_ejects_nobody(status: int) -> None:
    options = {**health(), "forward_authorization": True}
    async with (
        ScriptedUpstream(json_answer(FAILED, status)) as u,
        ScriptedUpstream(chat_stream()) as other,
        running_gateway(config(u.url, other.url, pool_options=options)) as gw,
    ):
        replies = [await gw.post(r0(), headers=CALLER) for _ in range(8)]
        assert {reply.status for reply in replies} == {200, status}
        assert {reply.error["message"] for reply in replies if reply.status == status} == {"engine trouble"}
        assert await states(gw) == ["healthy", "healthy"]


async def test_an_endpoint_with_a_credential_of_its_own_is_shown_no_other_and_ejected_if_that_is_refused() -> None:
    options = {**health(), "forward_authorization": True}
    async with (
        ScriptedUpstream(json_answer(FAILED, 401)) as u,
        ScriptedUpstream(chat_stream()) as other,
        running_gateway(config({"url": u.url, "api_key": "own"}, other.url, pool_options=options)) as gw,
    ):
        for _ in range(4):
            await gw.post(r0(), headers=CALLER)
        assert [value for name, value in u.last.headers if name == b"authorization"] == [b"Bearer own"]
        assert other.last.header("authorization") == b"Bearer caller"
        assert await states(gw) == ["ejected", "healthy"]


async def test_a_path_that_a_client_made_up_and_an_engine_forbids_ejects_nobody() -> None:
    async with (
        ScriptedUpstream(json_answer(FAILED, 403)) as u,
        running_gateway(config(u.url, u.url + "/", pool_options=health(failures=1))) as gw,
    ):
        for _ in range(4):
            assert (await gw.post({"model": "m"}, path="/v1/made/up")).status == 403
        assert await states(gw) == ["healthy", "healthy"]


async def test_probes_go_on_while_one_engine_hangs() -> None:
    """Each endpoint is probed for itself."""
    async with (
        ScriptedUpstream(chat_stream(), plain={"/health": [pause(60)]}) as u,
        ScriptedUpstream(chat_stream()) as other,
        running_gateway(config(u.url, other.url, pool_options=health(timeout="1m"))) as gw,
    ):
        while len(other.probes) < 4:
            await gw.get("/healthz")
        assert len(u.probes) == 1
