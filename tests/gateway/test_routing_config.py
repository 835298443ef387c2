"""From the configuration of a pool's routing to where real requests go."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gateway.config import PoolConfig
from gateway.pool import Pool
from gateway.routing_policy import routing_policy
from policies.routing import ROUTING
from policies.types import Learner
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import Reply, r0, request_bytes
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    hang,
    head,
    json_answer,
    role,
    tok,
    unused_port,
)

CHAT = "/v1/chat/completions"
BUSY = [head(200, "sse"), role(), tok("a"), hang()]


def answer(request: Request) -> Script:
    return chat_stream("ab") if request.asked_for_stream else json_answer(completion("ab"))


def held_or_answered(request: Request) -> Script:
    """The same, but that a request of this id is held open after its first token."""
    return BUSY if request.header("x-request-id") == b"long" else answer(request)


@asynccontextmanager
async def pool(
    endpoints: Mapping[str, Mapping[str, Any]], answers: Mapping[str, Any] | None = None, **options: Any
) -> AsyncGenerator[tuple[RunningGateway, dict[str, ScriptedUpstream]]]:
    """A gateway before one engine for each id, with these keys of its endpoint."""
    async with AsyncExitStack() as stack:
        given = answers or {}
        made = {name: await stack.enter_async_context(ScriptedUpstream(given.get(name, answer))) for name in endpoints}
        listed = [{"url": made[name].url, "id": name, **keys} for name, keys in endpoints.items()]
        yield await stack.enter_async_context(running_gateway(config(*listed, pool_options=options))), made


def where(reply: Reply) -> str:
    assert reply.status == 200, reply.raw
    found = reply.header("x-weir-endpoint")
    assert found is not None
    return found


async def reason(gw: RunningGateway, reply: Reply) -> str:
    """Why the request's last attempt went where it went, as the recorder tells."""
    found = await gw.get(f"/weir/requests/{reply.header('x-request-id')}")
    told: str = found.json()["attempts"][-1]["reason"]
    return told


async def by_session(gw: RunningGateway, header: str, count: int = 12) -> dict[str, str]:
    names = [f"s{i}" for i in range(count)]
    return {name: where(await gw.post(r0(stream=False), headers=[(header, name)])) for name in names}


# --- sessions


async def test_a_session_stays_at_its_endpoint_and_sessions_spread() -> None:
    async with pool({"a": {}, "b": {}, "c": {}}, routing={"policy": "session"}) as (gw, _):
        first = await by_session(gw, "X-Session-Id")
        assert len(set(first.values())) == 3
        assert await by_session(gw, "x-session-id") == first
        reply = await gw.post(r0(), headers=[("x-session-id", "s0")])
        assert await reason(gw, reply) == "its session's endpoint"


async def test_the_header_may_have_another_name_and_the_body_a_user() -> None:
    async with pool({"a": {}, "b": {}, "c": {}}, routing={"policy": "session", "header": "X-Chat"}) as (gw, _):
        named = await by_session(gw, "x-chat")
        users = {name: where(await gw.post(r0(user=name, stream=False))) for name in named}
        assert users == named
        other = "s0" if named["s0"] != named["s1"] else "s2"
        reply = await gw.post(r0(user=other), headers=[("x-chat", "s1"), ("x-session-id", other)])
        assert where(reply) == named["s1"], "the header comes before the user"
        plain = await gw.post(r0(), headers=[("x-session-id", "s0")])
        assert (await reason(gw, plain)).startswith("names no session; fewest in flight")


async def test_a_session_whose_endpoint_is_busy_breaks_and_comes_back() -> None:
    async with (
        pool(
            {"a": {}, "b": {}},
            {"a": held_or_answered},
            routing={"policy": "session"},
        ) as (gw, engines),
        AsyncExitStack() as open_requests,
    ):
        homes = await by_session(gw, "x-session-id", 8)
        name = next(name for name, home in homes.items() if home == "a")
        header = ("x-session-id", name)
        for _ in range(3):
            connection = await open_requests.enter_async_context(gw.connect())
            await connection.send(request_bytes("POST", CHAT, r0(), [header, ("x-request-id", "long")]))
            await connection.read_until(b'"content":"a"')
        before = len(engines["b"].requests)
        moved = await gw.post(r0(), headers=[header])
        assert where(moved) == "b"
        assert await reason(gw, moved) == "its session's next endpoint: a has 3 in flight, over its bound of 2.9"
        assert len(engines["b"].requests) == before + 1
        await open_requests.aclose()
        await gw.at_rest()
        assert where(await gw.post(r0(), headers=[header])) == "a"


# --- rules


RULES = [
    {"when": {"header": {"X-Team": "payments"}}, "to": "team"},
    {"when": {"model": "alias"}, "to": "team"},
    {"when": {"min_prompt_tokens": 1000}, "to": "long"},
    {"to": "rest"},
]
ENDPOINTS = {"team": {"label": "team"}, "long": {"label": "long"}, "rest": {"label": "rest"}}


async def test_rules_by_header_model_and_length() -> None:
    async with pool(ENDPOINTS, aliases=["alias"], routing={"rules": RULES}) as (gw, _):
        for _ in range(3):
            assert where(await gw.post(r0(), headers=[("x-team", "payments")])) == "team"
            assert where(await gw.post(r0(), headers=[("x-team", "other")])) == "rest"
            assert where(await gw.post(r0(model="alias"))) == "team"
            long = await gw.post(r0(messages=[{"role": "user", "content": "word " * 1000}]))
            assert where(long) == "long"
            assert where(await gw.post(r0())) == "rest"
            assert await reason(gw, long) == "rule 3, label long; fewest in flight: 0"


async def test_a_rule_whose_endpoint_refuses_connections_falls_through() -> None:
    dead = {"url": f"http://127.0.0.1:{unused_port()}", "id": "team", "label": "team"}
    async with ScriptedUpstream(answer) as u:
        text = config(dead, {"url": u.url, "id": "rest"}, pool_options={"routing": {"rules": [RULES[0]]}})
        async with running_gateway(text) as gw:
            reply = await gw.post(r0(), headers=[("x-team", "payments")])
            assert where(reply) == "rest"
            assert await reason(gw, reply) == "rule 1, but no endpoint of label team takes it now; fewest in flight: 0"


# --- canary


async def test_a_canary_gets_its_share_of_sessions_and_keeps_them() -> None:
    options = {"routing": {"policy": "round_robin", "canary": {"label": "new", "share": 0.5}}}
    async with pool({"old-1": {}, "old-2": {}, "new": {"label": "new"}}, **options) as (gw, _):
        first = await by_session(gw, "x-session-id", 20)
        again = await by_session(gw, "x-session-id", 20)
        assert [home == "new" for home in first.values()] == [home == "new" for home in again.values()]
        assert 4 <= Counter(first.values())["new"] <= 16
        assert {"old-1", "old-2"} <= set(first.values()), "the policy chooses on each side"
        reply = await gw.post(r0(), headers=[("x-session-id", "s0")])
        said = "in the canary (0.5); its turn" if first["s0"] == "new" else "not in the canary (0.5); its turn"
        assert (await reason(gw, reply)).startswith(said)


async def test_a_canary_that_fails_costs_a_retry_and_fails_nobody() -> None:
    broken = json_answer({"error": {"message": "no", "code": 500}}, 500)
    options = {"routing": {"canary": {"label": "new", "share": 1}}, "health": {"failures": 100}}
    async with pool({"old": {}, "new": {"label": "new"}}, {"new": broken}, **options) as (gw, engines):
        for _ in range(3):
            reply = await gw.post(r0(), headers=[("x-session-id", "s")])
            assert (where(reply), reply.header("x-weir-attempts")) == ("old", "2")
            assert "no endpoint of that side takes it now" in await reason(gw, reply)
        assert len(engines["new"].requests) == 3


# --- tiers


async def test_a_higher_tier_is_used_when_the_first_is_full_and_no_longer() -> None:
    async with (
        pool(
            {"own": {"overflow_at": 2}, "rented": {"tier": 1}},
            {"own": held_or_answered},
        ) as (gw, _),
        AsyncExitStack() as open_requests,
    ):
        for _ in range(5):
            assert where(await gw.post(r0())) == "own"
        for _ in range(2):
            connection = await open_requests.enter_async_context(gw.connect())
            await connection.send(request_bytes("POST", CHAT, r0(), [("x-request-id", "long")]))
            await connection.read_until(b'"content":"a"')
        reply = await gw.post(r0())
        assert where(reply) == "rented"
        assert await reason(gw, reply) == "tier 1, for tier 0 is full; fewest in flight: 0"
        await open_requests.aclose()
        await gw.at_rest()
        assert where(await gw.post(r0())) == "own"


async def test_a_higher_tier_stands_in_for_one_that_refuses_connections() -> None:
    dead = {"url": f"http://127.0.0.1:{unused_port()}", "id": "own"}
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config(dead, {"url": u.url, "id": "rented", "tier": 1})) as gw,
    ):
        for _ in range(4):
            assert where(await gw.post(r0())) == "rented"


# --- every policy


@pytest.mark.parametrize("policy", sorted(ROUTING))
async def test_every_policy_serves(policy: str) -> None:
    async with pool({"a": {}, "b": {"weight": 2}}, routing={"policy": policy}) as (gw, engines):
        for i in range(24):
            assert (await gw.post(r0(), headers=[("x-session-id", f"s{i}")])).content() == "ab"
        assert len(engines["a"].requests) + len(engines["b"].requests) == 24
        metrics = await gw.settled(lambda m: m.total("weir_route_choices_total") == 24)
        assert metrics.total("weir_route_choices_total", policy=policy) == 24


def test_a_policy_that_learns_is_found_behind_what_narrows_it() -> None:
    endpoints = [{"url": "http://127.0.0.1:9", "id": "a"}, {"url": "http://127.0.0.1:9", "id": "b", "tier": 1}]
    narrow = PoolConfig.model_validate({"name": "m", "endpoints": endpoints, "routing": {"policy": "peak_ewma"}})
    policy = routing_policy(narrow)
    assert isinstance(policy, Learner)
    subject = Pool(narrow)
    with subject.endpoints["a"].own.lease(10, 10, 1.0) as lease:
        lease.first_output(1.0, 1.5)
    assert subject.endpoints["a"].snapshot().learnt == (0.5, 1.5)
