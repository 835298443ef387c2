"""Through a real nginx: its own errors look like Weir's, Weir's pass as they are, and operators' pages stay inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import LimitsHttpConfig
from gateway.errors import BadRequest, UpstreamFailed, UpstreamTimeout
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import Reply, r0, request_bytes
from tests.fakes.scripted import Script, ScriptedUpstream, chat_stream, silent_listener, unused_port
from tests.nginx.real_nginx import needs_nginx, running_nginx

pytestmark = needs_nginx

LIMITS = LimitsHttpConfig()
STREAM: Script = chat_stream("ab")


def assert_shaped_like(reply: Reply, example: BadRequest | UpstreamFailed | UpstreamTimeout) -> None:
    """The reply is JSON with the status and the very keys of that error of Weir's, and carries a request id."""
    expected = Reply((), example.status, (), example.body("id"), True).error
    assert reply.status == example.status
    assert reply.header("content-type") == "application/json"
    error = reply.error
    assert error.keys() == expected.keys()
    assert error["type"] == expected["type"]
    assert error["param"] is None
    assert error["message"]
    assert error["weir"].keys() == expected["weir"].keys()
    assert error["weir"]["retryable"] is expected["weir"]["retryable"]
    assert error["weir"]["request_id"] == reply.header("x-request-id")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/files/page.html"])
async def test_a_weir_that_is_down_is_a_502_in_json(path: str, tmp_path: Path) -> None:
    async with running_nginx(tmp_path, unused_port()) as nginx:
        reply = await nginx.post(r0(), path, [("x-request-id", "r-1")])
    assert_shaped_like(reply, UpstreamFailed("m"))
    assert reply.error["code"] == "weir_unreachable"
    assert reply.header("x-request-id") == "r-1"


async def test_a_request_id_cannot_break_the_json(tmp_path: Path) -> None:
    async with running_nginx(tmp_path, unused_port()) as nginx:
        reply = await nginx.post(r0(), headers=[("x-request-id", '","injected":"')])
    assert_shaped_like(reply, UpstreamFailed("m"))


async def test_a_weir_that_accepts_no_connection_is_a_504_in_json(tmp_path: Path) -> None:
    with silent_listener() as port:
        async with running_nginx(tmp_path, port) as nginx:
            reply = await nginx.post(r0())
    assert_shaped_like(reply, UpstreamTimeout("m"))
    assert reply.error["code"] == "weir_timeout"


@pytest.mark.parametrize("expect", [[], [("expect", "100-continue")]], ids=["plain", "expecting 100"])
async def test_a_body_above_the_limit_is_a_413_in_json(expect: list[tuple[str, str]], tmp_path: Path) -> None:
    announced = [("content-length", str(LIMITS.body_bytes + 1)), *expect]
    request = request_bytes("POST", "/v1/chat/completions", b"{", announced)
    async with (
        ScriptedUpstream(STREAM) as u,
        running_gateway(config(u.url)) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
    ):
        behind = await nginx.raw(request)
        direct = await gw.raw(request)
        assert not u.requests
    assert_shaped_like(behind, BadRequest("m", status=413))
    assert behind.error["code"] == direct.error["code"]


@pytest.mark.parametrize("where", ["header", "request line"])
async def test_a_head_above_the_limit_is_a_431_in_json(where: str, tmp_path: Path) -> None:
    long = "a" * (LIMITS.header_bytes + 1)
    path, headers = ("/health", [("x-long", long)]) if where == "header" else (f"/health?{long}", [])
    async with (
        ScriptedUpstream(STREAM) as u,
        running_gateway(config(u.url)) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
    ):
        reply = await nginx.raw(request_bytes("GET", path, headers=headers))
    assert_shaped_like(reply, BadRequest("m", status=431))
    assert reply.error["code"] == "headers_too_large"


async def test_a_head_that_weir_takes_passes(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(STREAM) as u,
        running_gateway(config(u.url)) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
    ):
        reply = await nginx.post(r0(), headers=[("x-long", "a" * (LIMITS.header_bytes - 1_024))])
    assert reply.content() == "ab"


async def test_weirs_own_errors_pass_as_they_are(tmp_path: Path) -> None:
    async with (
        running_gateway(config(f"http://127.0.0.1:{unused_port()}")) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
    ):
        unknown = await nginx.post(r0(model="no-such"))
        assert (unknown.status, unknown.error["code"]) == (404, "model_not_found")
        failed = await nginx.post(r0())
        assert failed.status in (502, 503)
        assert failed.error["weir"]["stage"] in ("connect", "engine", "route")


@pytest.mark.parametrize(
    "path",
    [
        "/metrics",
        "/metrics/",
        "//metrics",
        "/metrics?x=1",
        "/%6detrics",
        "/v1/../metrics",
        "/v1/..%2fmetrics",
        "/weir",
        "/weir/endpoints",
        "//weir//endpoints/",
        "/%77eir%2Fendpoints",
    ],
)
async def test_what_is_for_operators_is_refused_to_the_outside(path: str, tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(STREAM) as u,
        running_gateway(config(u.url)) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
    ):
        reply = await nginx.get(path)
        assert (await gw.get("/metrics")).status == 200
        assert (await gw.get("/weir/endpoints")).status == 200
        assert (await nginx.get("/healthz")).status == 200
    assert_shaped_like(reply, BadRequest("m", status=403))
    assert reply.error["code"] == "forbidden"
