"""Bodies that were made to keep a parser busy: two megabytes of each are answered, for the work grows as they do."""

from __future__ import annotations

import pytest

from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import ScriptedUpstream, completion, json_answer, to_json

CHAT = "/v1/chat/completions"
SIZE_BYTES = 2_000_000


def filled(piece: bytes, size_bytes: int = SIZE_BYTES) -> bytes:
    return piece * (size_bytes // len(piece))


@pytest.mark.parametrize("piece", [b"\\\\", b'\\"', b"\\u00e9", b'\\\\\\"', b"\\u005c", b'", "', b"[", b"{\\\\", b": "])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_string_of_escapes_is_answered(piece: bytes, closed: bool, stream: bool) -> None:
    body = b'{"model":"m","stream":%b,"messages":[{"role":"user","content":"' % to_json(stream) + filled(piece)
    if closed:
        body += b'"}]}'
    async with ScriptedUpstream(json_answer(completion())) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(body)
        assert reply.status < 500 or reply.error["code"] != "internal_error"
        assert "fault of Weir" not in gw.logs.text


@pytest.mark.parametrize("odd", [True, False])
async def test_a_run_of_backslashes_is_answered(odd: bool) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"' + b"\\" * (SIZE_BYTES + odd) + b'"}]}'
    async with ScriptedUpstream(json_answer(completion())) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.post(body)).status == (400 if odd else 200)
        assert len(u.requests) == (0 if odd else 1)


@pytest.mark.parametrize(
    "piece",
    [
        b'name="model"\r\n',
        b"--q\r\n",
        b"--q",
        b'--q\r\ncontent-disposition: form-data; name="model"\r\n',
        b'--q\r\ncontent-disposition: form-data; name="other"\r\n\r\nx\r\n',
        b"\r\n\r\n",
        b";",
    ],
)
async def test_a_form_of_lines_that_look_like_the_model_is_passed_on(piece: bytes) -> None:
    body = filled(piece)
    async with ScriptedUpstream(json_answer({"text": "hi"})) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(
            body, "/v1/audio/transcriptions", headers=[("content-type", "multipart/form-data; boundary=q")]
        )
        assert reply.json() == {"text": "hi"}
        assert u.last.body == body


@pytest.mark.parametrize("piece", [b"<", b"<a", b">", b"<<>", b"&lt;", b"\\", b'{"error":'])
@pytest.mark.parametrize("path", [CHAT, "/v1/rerank"])
async def test_an_error_page_of_tags_is_told_as_an_error(piece: bytes, path: str) -> None:
    async with (
        ScriptedUpstream(json_answer(filled(piece), 500)) as u,
        running_gateway(config(u.url)) as gw,
    ):
        reply = await gw.post(r0(stream=False), path)
        assert 500 <= reply.status < 600
        assert len(reply.error["message"]) < 10_000


async def test_a_stream_asked_with_a_long_prompt_of_escapes_is_answered() -> None:
    text = ("é" * 2 + "word ") * (SIZE_BYTES // 16)
    request = request_bytes("POST", CHAT, r0(stream=False, messages=[{"role": "user", "content": text}]))
    async with ScriptedUpstream(json_answer(completion())) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.raw(request)).status == 200
        assert u.last.json()["messages"][0]["content"] == text


async def test_many_small_chunks_are_put_together() -> None:
    body = to_json(r0(stream=False, messages=[{"role": "user", "content": "x" * 100_000}]))
    small = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    async with ScriptedUpstream(json_answer(completion())) as u, running_gateway(config(u.url)) as gw:
        request = request_bytes("POST", CHAT, small, [("transfer-encoding", "chunked")])
        assert (await gw.raw(request)).status == 200
        assert len(u.last.json()["messages"][0]["content"]) == 100_000
