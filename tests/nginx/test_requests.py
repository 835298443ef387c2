"""Through a real nginx: what of a request reaches Weir and the engine, and over which connections."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.asgi_relay import RelayProtocol
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import chunked, r0, request_bytes
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    eof,
    eventually,
    json_answer,
    to_json,
)
from tests.nginx.real_nginx import needs_nginx, running_nginx

pytestmark = needs_nginx

PROMPT_BYTES = 2_000_000
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MADE_ID = re.compile(rb"[0-9a-f]{32}")


def answer(request: Request) -> Script:
    return chat_stream("ab") if request.asked_for_stream else json_answer(completion())


@pytest.mark.parametrize("coding", ["length", "chunked"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_prompt_of_2_mb_passes_whole(stream: bool, coding: str, tmp_path: Path) -> None:
    prompt = "".join(f"{number:07} " for number in range(PROMPT_BYTES // 8))
    body = to_json(r0(messages=[{"role": "user", "content": prompt}], stream=stream))
    if coding == "length":
        request = request_bytes("POST", "/v1/chat/completions", body)
    else:
        request = request_bytes("POST", "/v1/chat/completions", chunked(body), [("transfer-encoding", "chunked")])
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config(u.url)) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
    ):
        reply = await nginx.raw(request)
        assert reply.status == 200, reply.raw[:500]
        assert u.last.json()["messages"] == [{"role": "user", "content": prompt}]
    assert not list((tmp_path / "body").iterdir()), "the prompt was written to disk"


async def test_weir_is_called_before_all_of_a_body_is_there(tmp_path: Path) -> None:
    request = request_bytes("POST", "/v1/chat/completions", r0(stream=False))
    async with (
        ScriptedUpstream(answer) as weir,
        running_nginx(tmp_path, weir.port) as nginx,
        nginx.connect() as connection,
    ):
        await connection.send(request[:-10])
        await eventually(lambda: weir.open_connections == 1)
        await connection.send(request[-10:])
        assert (await connection.reply()).status == 200


async def test_request_id_and_trace_context_reach_the_engine(tmp_path: Path) -> None:
    sent = [("x-request-id", "r-1"), ("traceparent", TRACEPARENT), ("tracestate", "vendor=1")]
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config(u.url)) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
    ):
        reply = await nginx.post(r0(), headers=sent)
        assert reply.header("x-request-id") == "r-1"
        assert u.last.header("x-request-id") == b"r-1"
        assert (u.last.header("traceparent") or b"").split(b"-")[1] == TRACEPARENT.split("-")[1].encode()
        assert u.last.header("tracestate") == b"vendor=1"


async def test_weir_is_told_the_host_the_caller_and_the_trace(tmp_path: Path) -> None:
    sent = [("traceparent", TRACEPARENT), ("tracestate", "vendor=1"), ("authorization", "Bearer k")]
    async with ScriptedUpstream(json_answer(completion())) as weir, running_nginx(tmp_path, weir.port) as nginx:
        await nginx.post(r0(stream=False), headers=[*sent, ("x-forwarded-for", "203.0.113.7")])
        request = weir.last
    told = {name.lower(): text for name, text in request.headers}
    assert len(told) == len(request.headers), "a header was sent twice"
    assert told[b"host"] == b"weir.test"
    assert told[b"x-forwarded-for"] == b"203.0.113.7, 127.0.0.1"
    assert told[b"x-forwarded-proto"] == b"http"
    assert told[b"traceparent"] == TRACEPARENT.encode()
    assert told[b"tracestate"] == b"vendor=1"
    assert told[b"authorization"] == b"Bearer k"
    assert b"connection" not in told


@pytest.mark.parametrize(
    ("sent", "passed"),
    [
        ([("x-request-id", "r-1")], b"r-1"),
        ([("x-request-trace-id", "t-1")], b"t-1"),
        ([("x-request-id", "r-1"), ("x-request-trace-id", "t-1")], b"r-1"),
        ([], None),
        ([("x-request-id", 'a"b{c}')], None),
        ([("x-request-id", "a" * 129)], None),
    ],
)
async def test_nginx_makes_a_request_id_only_where_the_client_sent_no_sane_one(
    sent: list[tuple[str, str]], passed: bytes | None, tmp_path: Path
) -> None:
    async with ScriptedUpstream(json_answer(completion())) as weir, running_nginx(tmp_path, weir.port) as nginx:
        await nginx.post(r0(stream=False), headers=sent)
        given = weir.last.header("x-request-id") or b""
    assert given == passed if passed else MADE_ID.fullmatch(given)


@pytest.mark.parametrize("request_id", ["A-z0.9_:+/=@-", "a" * 128, "a" * 129, "a b", "<script>", "a,b"])
async def test_nginx_and_weir_agree_which_request_id_is_sane(request_id: str, tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config(u.url)) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
    ):
        headers = [("x-request-id", request_id)]
        direct = await gw.post(r0(), headers=headers)
        behind = await nginx.post(r0(), headers=headers)
    assert (direct.header("x-request-id") == request_id) is (behind.header("x-request-id") == request_id)


async def test_a_model_name_with_an_encoded_slash_stays_as_it_is(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config(u.url, pool="org/model")) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
    ):
        for path in ("/v1/models/org%2Fmodel", "/v1/models/org/model", "//v1//models/org/model"):
            reply = await nginx.get(path)
            assert reply.status == 200, path
            assert reply.json()["id"] == "org/model"


async def test_twenty_requests_need_one_connection_to_weir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    accepted: list[asyncio.Transport] = []
    made = RelayProtocol.connection_made

    def counted(self: RelayProtocol, transport: asyncio.Transport) -> None:
        accepted.append(transport)
        made(self, transport)

    monkeypatch.setattr(RelayProtocol, "connection_made", counted)
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config(u.url)) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
    ):
        for number in range(20):
            reply = await nginx.post(r0(stream=number % 2 == 0))
            assert reply.status == 200
        assert len(u.requests) == 20
        assert len(accepted) == 1


async def test_a_request_that_weir_breaks_off_is_not_sent_again(tmp_path: Path) -> None:
    def first_well(request: Request) -> Script:
        return json_answer(completion()) if request.turn == 1 else [eof()]

    body: dict[str, Any] = r0(stream=False)
    async with ScriptedUpstream(first_well) as weir, running_nginx(tmp_path, weir.port) as nginx:
        assert (await nginx.post(body)).status == 200
        broken = await nginx.post(body)  # on the kept connection: the one case in which nginx is tempted
        assert broken.status == 502
        assert broken.error["code"] == "weir_unreachable"
        assert len(weir.requests) == 2
