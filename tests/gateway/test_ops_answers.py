"""What every answer of Weir's own paths carries, and who gets to see the operator's."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Message

from gateway.app import App
from gateway.config.file import parse
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import request_bytes

NOWHERE = "http://127.0.0.1:9"
PAGE = "https://page.example"
ANSWERS = [
    ("GET", "/healthz", 200),
    ("GET", "/readyz", 200),
    ("GET", "/metrics", 200),
    ("GET", "/weir/endpoints", 200),
    ("GET", "/v1/models", 200),
    ("GET", "/v1/models/m", 200),
    ("GET", "/v1/models/unknown", 404),
    ("GET", "/nowhere", 404),
    ("GET", "/", 404),
    ("GET", "/weir/nowhere", 404),
    ("POST", "/healthz", 405),
    ("DELETE", "/v1/models", 405),
    ("POST", "/weir/endpoints", 405),
]


@pytest.mark.parametrize(("method", "path", "status"), ANSWERS)
async def test_every_answer_names_the_request(method: str, path: str, status: int) -> None:
    async with running_gateway(config(NOWHERE)) as gw:
        reply = await gw.raw(request_bytes(method, path, headers=[("x-request-id", "mine-1")]))
        assert (reply.status, reply.header("x-request-id")) == (status, "mine-1")
        if status >= 400:
            assert reply.error["weir"]["request_id"] == "mine-1"


@pytest.mark.parametrize("given", [None, "not sane", "x" * 200, ""])
async def test_a_request_without_a_sane_id_gets_one(given: str | None) -> None:
    async with running_gateway(config(NOWHERE)) as gw:
        replies = [await gw.get("/nowhere", [("x-request-id", given)] if given is not None else []) for _ in range(2)]
        ids = [reply.header("x-request-id") for reply in replies]
        assert len({*ids, given, None}) == 4 - (given is None)
        assert [reply.error["weir"]["request_id"] for reply in replies] == ids


async def test_a_fault_of_ours_is_answered_and_logged_under_the_requests_id(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_gateway(config(NOWHERE)) as gw:
        monkeypatch.setattr("gateway.ops_api.scrape", None)
        reply = await gw.get("/metrics", [("x-request-id", "mine-1")])
        assert (reply.status, reply.error["weir"]["request_id"]) == (500, "mine-1")
        assert reply.header("x-request-id") == "mine-1"
        assert "request mine-1 failed" in gw.logs.text
        assert gw.logs.text.count("Traceback") == 1


@pytest.mark.parametrize("host", ["[::1", "a b", "x:y:z"])
async def test_an_odd_host_is_no_fault(host: str) -> None:
    async with running_gateway(config(NOWHERE)) as gw:
        assert (await gw.get("/nowhere", [("host", host)])).status == 404


# --- web pages


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v1/models", "/v1/models/unknown", "/nowhere"])
async def test_a_cache_is_told_that_the_answer_depends_on_the_origin(path: str) -> None:
    async with running_gateway(config(NOWHERE, cors={"allow_origins": [PAGE]})) as gw:
        allowed, other, none = [
            await gw.get(path, [("origin", origin)] if origin else []) for origin in (PAGE, "https://x.example", None)
        ]
        assert allowed.header("access-control-allow-origin") == PAGE
        for reply in (allowed, other, none):
            assert reply.header("vary") == "origin"
        for reply in (other, none):
            assert reply.header("access-control-allow-origin") is None


@pytest.mark.parametrize("path", ["/weir/endpoints", "/metrics"])
async def test_no_page_reads_what_is_for_operators(path: str) -> None:
    """A page shown on this machine calls from this machine."""
    async with running_gateway(config(NOWHERE, cors={"allow_origins": ["*"]})) as gw:
        asked = [("origin", PAGE), ("access-control-request-method", "GET")]
        for method in ("GET", "OPTIONS"):
            reply = await gw.raw(request_bytes(method, path, headers=asked))
            assert reply.header("access-control-allow-origin") is None


@pytest.mark.parametrize("asked", ["x-a\x0b", "a\x00b", "x" * 3000, "a;b"])
async def test_odd_names_in_a_preflight_are_not_sent_back(asked: str) -> None:
    async with running_gateway(config(NOWHERE, cors={"allow_origins": [PAGE]})) as gw:
        headers = [("origin", PAGE), ("access-control-request-headers", asked)]
        reply = await gw.raw(request_bytes("OPTIONS", "/v1/chat/completions", headers=headers))
        assert reply.status in (204, 400)
        assert asked not in (reply.header("access-control-allow-headers") or "")


# --- who gets in


@pytest.mark.parametrize(
    "name", ["X-Forwarded-For", "forwarded", "X-Real-IP", "x-forwarded-host", "X-FORWARDED-PROTO", "via"]
)
async def test_whoever_comes_through_a_proxy_is_not_of_this_machine(name: str) -> None:
    async with running_gateway(config(NOWHERE)) as gw:
        for value in ("127.0.0.1", "for=10.0.0.1", ""):
            reply = await gw.get("/weir/endpoints", [(name, value)])
            assert (reply.status, reply.error["code"]) == (403, "forbidden")
            assert "admin.token" in reply.error["message"]


async def test_with_the_token_a_proxy_may_stand_in_between() -> None:
    async with running_gateway(config(NOWHERE, admin={"token": "t0ken"})) as gw:
        headers = [("authorization", "Bearer t0ken"), ("x-forwarded-for", "10.0.0.1")]
        assert (await gw.get("/weir/endpoints", headers)).status == 200


class Peer:
    """Stands for the link of our own protocol class."""

    def __init__(self, address: str | None) -> None:
        self._address = address

    def peer_address(self) -> str | None:
        return self._address


async def asked(**scope: Any) -> int:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    path = "/weir/endpoints"
    base: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [],
    }
    async with made() as app:
        await app({**base, **scope}, receive, send)
    status: int = sent[0]["status"]
    return status


@asynccontextmanager
async def made() -> AsyncGenerator[App]:
    app = App(parse(config(NOWHERE), source="test", environ={}), io.BytesIO())
    try:
        yield app
    finally:
        await app.fleet.aclose()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
async def test_a_caller_of_this_machine_gets_in(address: str) -> None:
    assert await asked(client=(address, 1)) == 200
    assert await asked(client=None, extensions={"weir.relay": Peer(address)}) == 200


@pytest.mark.parametrize("address", [None, "", "10.0.0.8", "::ffff:10.0.0.8", "/run/weir.sock", "localhost.evil"])
async def test_a_caller_who_may_be_anywhere_does_not(address: str | None) -> None:
    assert await asked(client=None if address is None else (address, 1)) == 403
    assert await asked(client=("127.0.0.1", 1), extensions={"weir.relay": Peer(address)}) == 403


async def test_a_server_that_does_not_tell_who_calls_lets_nobody_in() -> None:
    assert await asked() == 403
