"""RW-16 and RW-17, http-edge: spellings of URLs and keys are forgiven, and large bodies arrive or are refused."""

from __future__ import annotations

import asyncio
import hashlib
import json

import openai
import pytest

from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import chunked, r0, request_bytes, t0
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    done,
    end,
    fin,
    gate,
    head,
    json_answer,
    role,
    text_completion,
    tok,
)

FORGIVEN = [
    "/v1/chat/completions",
    "/v1/chat/completions/",
    "//v1/chat/completions",
    "/v1//chat/completions",
    "/v1/chat//completions//",
    "/v1/v1/chat/completions",
    "//v1//v1/chat/completions/",
    "/v1/chat/completions?api-version=1",
    "/v1/chat/completions/?",
]


def answer(request: Request) -> Script:
    if request.target.split("?")[0].endswith("/chat/completions"):
        return chat_stream("ab") if request.asked_for_stream else json_answer(completion("ab"))
    return json_answer(text_completion("ab"))


@pytest.mark.parametrize("path", FORGIVEN)
async def test_rw_16_slashes_and_a_doubled_version_are_forgiven(path: str) -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(config(u.url)) as gw:
        for stream in (True, False):
            reply = await gw.post(r0(stream=stream), path)
            assert reply.status == 200, reply.raw
            assert u.last.method == "POST"
            assert u.last.target.split("?")[0] == "/v1/chat/completions"
            assert u.last.json()["messages"] == r0()["messages"]


@pytest.mark.parametrize("path", ["/v1/completions/", "//v1/completions", "/v1/v1/completions"])
async def test_rw_16_completions_paths_are_forgiven_too(path: str) -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.post(t0(stream=False), path)).status == 200
        assert u.last.target == "/v1/completions"


@pytest.mark.parametrize("path", ["/v1/models/", "//v1/models", "/v1/v1/models"])
async def test_rw_16_the_list_of_models_is_forgiven_too(path: str) -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.get(path)
        assert reply.status == 200
        assert [model["id"] for model in reply.json()["data"]] == ["m"]


@pytest.mark.parametrize("path", ["/chat/completions", "/completions", "/models", "/v2/chat/completions", "/api/v1/x"])
async def test_rw_16_another_path_is_served_or_a_404_that_names_the_right_one(path: str) -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream=False), path)
        if reply.status != 200:
            assert reply.status in (404, 405)
            assert reply.header("content-type") == "application/json"
            assert "/v1/" in reply.error["message"]
            assert not u.requests


async def test_rw_16_nothing_is_ever_redirected() -> None:
    paths = [*FORGIVEN, "/", "/v1", "/v1/", "/chat/completions", "/nothing", "/v1/nothing/"]
    async with ScriptedUpstream(answer) as u, running_gateway(config(u.url)) as gw:
        for path in paths:
            for reply in (await gw.post(r0(stream=False), path), await gw.get(path)):
                assert not 300 <= reply.status < 400, path


@pytest.mark.parametrize(
    ("base", "target"),
    [
        ("", "/v1/chat/completions"),
        ("/", "/v1/chat/completions"),
        ("/v1", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/api/v3", "/api/v3/chat/completions"),
        ("/api/v3/", "/api/v3/chat/completions"),
        ("/proxy", "/proxy/v1/chat/completions"),
        ("/proxy/v1/", "/proxy/v1/chat/completions"),
        ("//", "/v1/chat/completions"),
    ],
)
async def test_rw_16_the_base_of_an_endpoint_may_be_spelled_in_any_way(base: str, target: str) -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(config(u.url + base)) as gw:
        assert (await gw.post(r0())).status == 200
        assert u.last.target == target
        assert u.last.header("host") == f"127.0.0.1:{u.port}".encode()


async def test_rw_16_the_official_client_works_with_any_spelling_of_the_base_url() -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(config(u.url)) as gw:
        for base in ("/v1", "/v1/", "//v1", "/v1/v1"):
            sdk = gw.sdk(base_url=gw.url + base)
            made = await sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
            assert made.choices[0].message.content == "ab"


@pytest.mark.parametrize("value", ["bearer k", "Bearer  k", "BEARER k", "Bearer k ", "Bearer", "k", "Basic eDp5", ""])
async def test_rw_16_without_keys_any_authorization_is_welcome(value: str) -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.post(r0(), headers=[("Authorization", value)])).status == 200
        assert (await gw.post(r0())).status == 200


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "text/plain", "Application/JSON", ""])
async def test_rw_16_the_content_type_of_a_request_does_not_matter(content_type: str) -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.post(r0(), headers=[("content-type", content_type)])).status == 200
        assert u.last.header("content-type") == b"application/json"


async def test_rw_16_requests_on_one_connection_are_answered_in_order() -> None:
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as connection,
    ):
        for stream in (True, False, True, False):
            connection.reads.clear()
            await connection.send(request_bytes("POST", "/v1/chat/completions", r0(stream=stream)))
            reply = await connection.reply()
            assert reply.status == 200
            assert reply.done or reply.json()["choices"]


async def test_rw_16_requests_sent_ahead_on_one_connection_are_answered_in_order() -> None:
    async with (
        ScriptedUpstream(lambda r: json_answer(completion(r.json()["messages"][0]["content"]))) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as connection,
    ):
        bodies = [r0(stream=False, messages=[{"role": "user", "content": f"n{i}"}]) for i in range(3)]
        await connection.send(b"".join(request_bytes("POST", "/v1/chat/completions", body) for body in bodies))
        got = await connection.read_until(b'"content":"n2"')
        assert [got.count(f'"content":"n{i}"'.encode()) for i in range(3)] == [1, 1, 1]
        assert got.index(b'"content":"n0"') < got.index(b'"content":"n1"') < got.index(b'"content":"n2"')


async def test_rw_16_a_client_that_waits_for_continue_is_told_to_go_on() -> None:
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as connection,
    ):
        request = request_bytes("POST", "/v1/chat/completions", r0(), [("Expect", "100-continue")])
        top, _, body = request.partition(b"\r\n\r\n")
        await connection.send(top + b"\r\n\r\n")
        assert (await connection.read_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        await connection.send(body)
        reply = await connection.reply()
        assert reply.status == 200
        assert u.last.header("expect") is None


async def test_rw_16_a_request_that_comes_byte_by_byte_is_read_whole() -> None:
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as connection,
    ):
        for byte in request_bytes("POST", "/v1/chat/completions", r0()):
            await connection.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await connection.reply()).content() == "ab"
        assert u.last.json()["messages"] == r0()["messages"]


MEBIBYTE = 1 << 20


def with_image(size_bytes: int) -> bytes:
    """A chat body with a data URL of that size."""
    url = "data:image/png;base64," + "Zm9vYmFy" * (size_bytes // 8)
    parts = [{"type": "text", "text": "A"}, {"type": "image_url", "image_url": {"url": url}}]
    return json.dumps(r0(messages=[{"role": "user", "content": parts}])).encode()


def image_hash(body: bytes) -> str:
    return hashlib.sha256(json.loads(body)["messages"][0]["content"][1]["image_url"]["url"].encode()).hexdigest()


@pytest.mark.parametrize("coding", ["length", "chunked"])
@pytest.mark.parametrize("model", [None, "real"], ids=["same model", "renamed model"])
async def test_rw_17_a_25_mb_body_arrives_exactly(coding: str, model: str | None) -> None:
    body = with_image(25 * MEBIBYTE)
    if coding == "chunked":
        request = request_bytes("POST", "/v1/chat/completions", chunked(body), [("transfer-encoding", "chunked")])
    else:
        request = request_bytes("POST", "/v1/chat/completions", body)
    endpoint = {"model": model} if model else {}
    async with (
        ScriptedUpstream(chat_stream("ab")) as u,
        running_gateway(config({"url": u.url, **endpoint})) as gw,
    ):
        reply = await gw.raw(request)
        assert reply.content() == "ab"
        assert image_hash(u.last.body) == image_hash(body)
        assert u.last.json()["model"] == (model or "m")


async def test_rw_17_other_streams_go_on_while_a_large_body_comes_in() -> None:
    """Each stream's next token is released only when the previous one has arrived; the upload lies between."""
    first, second = asyncio.Event(), asyncio.Event()
    script = [head(200, "sse"), role(), gate(first), tok("a"), gate(second), tok("b"), fin("stop"), done(), end()]
    body = request_bytes("POST", "/v1/chat/completions", with_image(8 * MEBIBYTE))

    def by_size(request: Request) -> Script:
        return chat_stream("big") if len(request.body) > MEBIBYTE else script

    async with ScriptedUpstream(by_size) as u, running_gateway(config(u.url)) as gw, asyncio.TaskGroup() as group:
        streams = [group.create_task(gw.post(r0())) for _ in range(20)]
        await u.arrived(20)
        async with gw.connect() as upload:
            await upload.send(body[: len(body) // 2])
            first.set()
            async with gw.connect() as small:
                await small.send(request_bytes("POST", "/v1/chat/completions", r0()))
                await small.read_until(b'"content":"a"')
                await upload.send(body[len(body) // 2 :])
                assert (await upload.reply()).content() == "big"
                second.set()
                assert (await small.reply()).content() == "ab"
        for stream in streams:
            assert (await stream).content() == "ab"


LIMIT = 64 * 1024


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/v1/tokenize"])
async def test_rw_17_a_body_over_the_limit_is_refused_before_it_is_read(path: str) -> None:
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config(u.url, limits_http={"body": "64KiB"})) as gw,
        gw.connect() as connection,
    ):
        await connection.send(request_bytes("POST", path, b"{", [("content-length", str(LIMIT + 1))]))
        reply = await connection.reply()
        assert reply.status == 413
        assert reply.header("content-type") == "application/json"
        assert "64" in reply.error["message"] or str(LIMIT) in reply.error["message"]
        assert not u.requests


async def test_rw_17_a_chunked_body_is_refused_as_soon_as_it_is_over_the_limit() -> None:
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config(u.url, limits_http={"body": "64KiB"})) as gw,
        gw.connect() as connection,
    ):
        endless = chunked(b" " * (LIMIT + 1_000), 1_000).removesuffix(b"0\r\n\r\n")
        request = request_bytes("POST", "/v1/chat/completions", endless, [("transfer-encoding", "chunked")])
        await connection.send(request)
        reply = await connection.reply()
        assert reply.status == 413
        assert reply.error["message"]
        assert not u.requests


async def test_rw_17_a_body_at_the_limit_is_served() -> None:
    body = json.dumps(r0()).encode()
    padded = body + b" " * (LIMIT - len(body))
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config(u.url, limits_http={"body": "64KiB"})) as gw,
    ):
        assert (await gw.post(padded)).content() == "ab"
        assert (await gw.post(padded + b" ")).status == 413


async def test_rw_17_headers_over_their_limit_are_refused() -> None:
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config(u.url, limits_http={"header": "8KiB"})) as gw,
    ):
        reply = await gw.post(r0(), headers=[("x-long", "a" * 16_384)])
        assert reply.status == 431
        assert reply.header("content-type") == "application/json"
        assert reply.error["message"]
        assert not u.requests
        assert (await gw.post(r0())).content() == "ab"


async def test_rw_17_the_official_client_shows_why_a_body_was_refused() -> None:
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config(u.url, limits_http={"body": "1KiB"})) as gw,
    ):
        with pytest.raises(openai.APIStatusError, match=r"1 ?KiB|1024|larger") as raised:
            await gw.sdk().chat.completions.create(model="m", messages=[{"role": "user", "content": "a" * 2_000}])
        assert raised.value.status_code == 413
