"""What browsers need to be told, on every path that a page calls."""

from __future__ import annotations

import pytest

from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import Reply, r0, request_bytes
from tests.fakes.scripted import ScriptedUpstream, chat_stream, completion, json_answer

CHAT = "/v1/chat/completions"
ONE, TWO, OTHER = "https://one.example", "https://two.example", "https://other.example"


def preflight(path: str, origin: str, method: str = "POST", asked: str = "authorization,content-type") -> bytes:
    headers = [
        ("origin", origin),
        ("access-control-request-method", method),
        ("access-control-request-headers", asked),
    ]
    return request_bytes("OPTIONS", path, headers=headers)


def allowed(reply: Reply) -> str | None:
    return reply.header("access-control-allow-origin")


def names(reply: Reply, header: str) -> set[str]:
    return {name.strip().lower() for name in (reply.header(header) or "").split(",")}


@pytest.mark.parametrize(
    "path", [CHAT, "/v1/completions", "/v1/embeddings", "/v1/models", "/v1/rerank", "/chat/completions"]
)
@pytest.mark.parametrize("origin", [ONE, TWO])
async def test_a_preflight_from_each_allowed_origin_is_answered_with_that_origin(path: str, origin: str) -> None:
    async with running_gateway(config("http://127.0.0.1:9", cors={"allow_origins": [ONE, TWO]})) as gw:
        reply = await gw.raw(preflight(path, origin))
        assert reply.status in (200, 204)
        assert allowed(reply) == origin
        assert "POST" in (reply.header("access-control-allow-methods") or "")
        assert {"authorization", "content-type"} <= names(reply, "access-control-allow-headers")


async def test_a_preflight_from_elsewhere_allows_nothing() -> None:
    async with running_gateway(config("http://127.0.0.1:9", cors={"allow_origins": [ONE]})) as gw:
        reply = await gw.raw(preflight(CHAT, OTHER))
        assert allowed(reply) != OTHER
        assert allowed(reply) != "*"


async def test_all_origins_may_be_allowed() -> None:
    async with (
        ScriptedUpstream(chat_stream()) as u,
        running_gateway(config(u.url, cors={"allow_origins": ["*"]})) as gw,
    ):
        assert allowed(await gw.raw(preflight(CHAT, OTHER))) == "*"
        assert allowed(await gw.post(r0(), headers=[("origin", OTHER)])) == "*"


async def test_the_headers_of_the_official_client_are_allowed() -> None:
    """Its browser build names itself in headers of its own, and a browser asks for each of them."""
    asked = "authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-retry-count,x-stainless-runtime"
    async with running_gateway(config("http://127.0.0.1:9", cors={"allow_origins": [ONE]})) as gw:
        reply = await gw.raw(preflight(CHAT, ONE, asked=asked))
        assert set(asked.split(",")) <= names(reply, "access-control-allow-headers")


async def test_a_delete_of_what_is_passed_on_is_allowed() -> None:
    async with running_gateway(config("http://127.0.0.1:9", cors={"allow_origins": [ONE]})) as gw:
        reply = await gw.raw(preflight("/v1/files/x", ONE, "DELETE"))
        assert "DELETE" in (reply.header("access-control-allow-methods") or "")


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_names_the_origin_that_asked(stream: bool) -> None:
    script = chat_stream() if stream else json_answer(completion())
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url, cors={"allow_origins": [ONE, TWO]})) as gw,
    ):
        reply = await gw.post(r0(stream=stream), headers=[("origin", TWO)])
        assert allowed(reply) == TWO
        assert "origin" in (reply.header("vary") or "").lower()
        assert allowed(await gw.post(r0(stream=stream), headers=[("origin", OTHER)])) is None
        assert allowed(await gw.post(r0(stream=stream))) is None


@pytest.mark.parametrize(
    ("body", "status"), [(b"{", 400), ({"model": "x", "messages": []}, 404), ({"model": "m"}, 400)]
)
async def test_an_error_can_be_read_by_the_page_too(body: object, status: int) -> None:
    async with running_gateway(config("http://127.0.0.1:9", cors={"allow_origins": [ONE]})) as gw:
        reply = await gw.post(body, headers=[("origin", ONE)])
        assert (reply.status, allowed(reply)) == (status, ONE)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/m", "/v1/models/unknown"])
async def test_the_list_of_models_can_be_read_by_the_page_too(path: str) -> None:
    async with running_gateway(config("http://127.0.0.1:9", cors={"allow_origins": [ONE]})) as gw:
        assert allowed(await gw.get(path, [("origin", ONE)])) == ONE


async def test_without_allowed_origins_nothing_is_said() -> None:
    async with ScriptedUpstream(chat_stream()) as u, running_gateway(config(u.url)) as gw:
        assert allowed(await gw.post(r0(), headers=[("origin", ONE)])) is None
        reply = await gw.raw(preflight(CHAT, ONE))
        assert allowed(reply) is None
        assert reply.status == 405
