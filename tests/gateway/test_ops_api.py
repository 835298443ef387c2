"""Health, the state of the endpoints, and who may see it."""

from __future__ import annotations

import io
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from starlette.types import Message

from gateway.config import Config
from gateway.server import RunningServer, start
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import Reply, connect, r0, request_bytes
from tests.fakes.scripted import VLLM, ScriptedUpstream, chat_stream, eventually, hang, head, role, tok

CHAT = "/v1/chat/completions"
HEALTHS = ("/health", "/readyz")


def pools(**options: dict[str, Any]) -> Config:
    made = {
        name: {"endpoints": [{"url": f"http://127.0.0.1:{port}", "engine": "vllm"} for port in (7, 9)], **given}
        for name, given in options.items()
    }
    # Probed once, before the test looks: nothing listens there
    return Config.model_validate({"listen": "127.0.0.1:0", "pools": made})


@asynccontextmanager
async def serving(made: Config) -> AsyncGenerator[RunningServer]:
    server = await start(made, io.BytesIO())
    try:
        yield server
    finally:
        await server.stop()


async def get(server: RunningServer, path: str) -> Reply:
    async with connect(server.port) as client:
        await client.send(request_bytes("GET", path))
        return await client.reply(method="GET")


def eject(server: RunningServer, pool: str, *indexes: int) -> None:
    endpoints = list(server.app.fleet.pools[pool].endpoints.values())
    for index in indexes:
        endpoints[index].health = replace(endpoints[index].health, ejected_until_s=time.monotonic() + 3600)


@pytest.mark.parametrize("path", HEALTHS)
async def test_ready_means_one_endpoint_of_every_pool_takes_traffic(path: str) -> None:
    async with serving(pools(a={}, b={})) as server:
        assert ((reply := await get(server, path)).status, reply.json()) == (200, {"status": "ok"})
        eject(server, "a", 0)
        assert (await get(server, path)).status == 200
        eject(server, "a", 1)
        reply = await get(server, path)
        assert reply.status == 503
        assert reply.json()["pools"] == ["a"]


@pytest.mark.parametrize("path", HEALTHS)
async def test_a_pool_that_is_not_required_is_not_waited_for(path: str) -> None:
    async with serving(pools(a={}, b={"required": False})) as server:
        eject(server, "b", 0, 1)
        assert (await get(server, path)).status == 200
        eject(server, "a", 0, 1)
        reply = await get(server, path)
        assert (reply.status, reply.json()["pools"]) == (503, ["a"])


async def test_the_process_lives_whatever_its_endpoints_do() -> None:
    async with serving(pools(a={})) as server:
        eject(server, "a", 0, 1)
        assert (await get(server, "/healthz")).status == 200


async def test_a_pool_without_endpoints_that_take_traffic_sheds() -> None:
    async with serving(pools(a={})) as server, connect(server.port) as client:
        eject(server, "a", 0, 1)
        await client.send(request_bytes("POST", CHAT, r0(model="a")))
        reply = await client.reply()
        assert (reply.status, reply.error["code"]) == (503, "no_endpoint")
        assert "/weir/endpoints" in reply.error["message"]
        assert reply.header("retry-after") == "1"


@pytest.mark.parametrize("path", [*HEALTHS, "/healthz", "/metrics", "/v1/models"])
async def test_a_check_may_ask_with_head(path: str) -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        reply = await gw.raw(request_bytes("HEAD", path))
        assert reply.status == 200
        assert reply.raw.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("path", [*HEALTHS, "/healthz", "/metrics", "/weir/endpoints", "/v1/models"])
async def test_a_check_takes_no_post(path: str) -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        reply = await gw.post({}, path)
        assert (reply.status, reply.error["code"]) == (405, "method_not_allowed")
        assert "GET" in (reply.header("allow") or "")


# --- the state of the endpoints


async def test_each_endpoint_is_listed_with_what_is_known_of_it() -> None:
    async with ScriptedUpstream([head(200, "sse"), role(), tok("a"), hang()]) as u:
        endpoints = [{"url": u.url, "id": "one"}, {"url": "http://127.0.0.1:9/", "id": "two", "engine": "llamacpp"}]
        async with running_gateway(config(*endpoints)) as gw, gw.connect() as client:
            await client.send(request_bytes("POST", CHAT, r0()))
            await client.read_until(lambda data: b'"content":"a"' in data or b"two" in data)
            listed = (await gw.get("/weir/endpoints")).json()
            assert [(e["id"], e["pool"], e["engine"], e["health"]) for e in listed] == [
                ("one", "m", "vllm", "healthy"),
                ("two", "m", "llamacpp", "healthy"),
            ]
            assert listed[0]["url"] == u.url
            assert sum(e["in_flight"] for e in listed) == 1
            assert {"engine_version", "in_flight"} <= listed[0].keys()


async def test_no_credential_is_listed() -> None:
    secret = {"url": "http://127.0.0.1:9", "api_key": "canary-key", "headers": {"x-tenant": "canary-header"}}
    async with running_gateway(config(secret)) as gw:
        assert b"canary" not in (await gw.get("/weir/endpoints")).body
        assert "canary" not in (await gw.metrics()).text


async def test_an_ejected_endpoint_is_listed_with_the_reason() -> None:
    async with (
        ScriptedUpstream(chat_stream()) as u,
        running_gateway(
            config("http://127.0.0.1:9", u.url, pool_options={"health": {"interval": "20ms", "failures": 1}})
        ) as gw,
    ):
        listed: list[dict[str, Any]] = []
        while not any(e["health"] == "ejected" for e in listed):
            listed = (await gw.get("/weir/endpoints")).json()
        assert [e["health"] for e in listed] == ["ejected", "healthy"]
        assert "probe" in listed[0]["reason"]


@pytest.mark.parametrize("headers", [[], [("authorization", "Bearer wrong")], [("authorization", "Basic t0ken")]])
async def test_with_a_token_nobody_gets_in_without_it(headers: list[tuple[str, str]]) -> None:
    async with running_gateway(config("http://127.0.0.1:9", admin={"token": "t0ken"})) as gw:
        reply = await gw.get("/weir/endpoints", headers)
        assert (reply.status, reply.error["code"]) == (401, "unauthorized")
        assert "t0ken" not in reply.raw.decode()


@pytest.mark.parametrize("value", ["Bearer t0ken", "bearer t0ken", "Bearer  t0ken "])
async def test_the_token_lets_in(value: str) -> None:
    async with running_gateway(config("http://127.0.0.1:9", admin={"token": "t0ken"})) as gw:
        assert (await gw.get("/weir/endpoints", [("authorization", value)])).status == 200


@pytest.mark.parametrize("value", ["Bearer t\xf6ken", "Bearer", "", "Bearer \xff"])
async def test_odd_tokens_are_refused_and_no_fault(value: str) -> None:
    async with running_gateway(config("http://127.0.0.1:9", admin={"token": "t0ken"})) as gw:
        assert (await gw.get("/weir/endpoints", [("authorization", value)])).status == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1", 200), ("::1", 200), ("10.0.0.8", 403), ("192.168.1.1", 403), ("2001:db8::1", 403)],
)
async def test_without_a_token_this_machine_alone_gets_in(host: str, status: int) -> None:
    async with serving(pools(a={})) as server:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "path": "/weir/endpoints",
            "raw_path": b"/weir/endpoints",
            "query_string": b"",
            "headers": [],
            "client": (host, 1234),
            "server": ("0.0.0.0", 80),
            "scheme": "http",
        }
        await server.app(scope, receive, send)
        assert sent[0]["status"] == status
        if status == 403:
            assert b"admin.token" in sent[1]["body"]


async def test_an_endpoint_found_by_itself_is_listed_under_its_name() -> None:
    async with (
        ScriptedUpstream(chat_stream(), plain=VLLM) as u,
        running_gateway(config({"url": u.url, "engine": "auto"})) as gw,
    ):
        await eventually(lambda: any(probe.target == "/version" for probe in u.probes))
        listed = (await gw.get("/weir/endpoints")).json()
        while listed[0]["engine_version"] == "":
            listed = (await gw.get("/weir/endpoints")).json()
        assert (listed[0]["engine"], listed[0]["engine_version"]) == ("vllm", "0.33.0")
        assert await gw.total("weir_endpoint_info", engine="vllm", engine_version="0.33.0") == 1
