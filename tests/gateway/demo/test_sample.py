"""The demo's own answer: what is read from the stream, and what it says when the stream is bad."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from gateway.demo.sample import Frame, SampleFailed, Timing, read_line, stream_answer
from gateway.simulator.batching import Pace
from gateway.simulator.server import Settings
from tests.gateway.simulator.served import serve

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
WORD = b'data: {"choices": [{"delta": {"content": "Word"}, "finish_reason": null}]}\n\n'


@asynccontextmanager
async def server_saying(answer: bytes) -> AsyncGenerator[str]:
    """A server that gives every request the same bytes and closes."""

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        ("", Frame()),
        (": weir endpoint=a", Frame()),
        ("data: [DONE]", Frame()),
        ('data: {"choices": [{"delta": {"role": "assistant", "content": null}}]}', Frame()),
        ('data: {"choices": [{"delta": {"content": "A"}, "finish_reason": null}]}', Frame("A")),
        ('data:{"choices": [{"delta": {}, "finish_reason": "stop"}]}', Frame(finished=True)),
        ('data: {"choices": [], "usage": {"completion_tokens": 7}}', Frame(tokens=7)),
        ('data: {"choices": [], "usage": null}', Frame()),
    ],
)
def test_a_line_of_the_stream_is_read(line: str, frame: Frame) -> None:
    assert read_line(line) == frame


@pytest.mark.parametrize(
    ("timing", "told"),
    [
        (Timing(0.0954, 0.5, 51, "a-0"), "51 tokens from a-0: first after 95 ms, then 100 tokens/s"),
        (Timing(1.5, 0.0, 1, "a-1"), "1 tokens from a-1: first after 1500 ms"),
    ],
)
def test_the_times_are_told_with_units(timing: Timing, told: str) -> None:
    assert str(timing) == told


async def test_an_answer_is_shown_piece_by_piece_and_timed() -> None:
    shown: list[str] = []
    async with serve(Settings(pace=Pace(ttft_s=0.001, itl_s=0.001))) as engine:
        timing = await stream_answer(f"{engine.url}/v1", "simulated", shown.append)
    assert len(shown) == timing.tokens > 10
    assert timing.ttft_s > 0
    assert timing.decode_s > 0


async def test_an_error_answer_is_told() -> None:
    async with serve(Settings()) as engine:
        with pytest.raises(SampleFailed, match=r"^Weir answered 404: .*other"):
            await stream_answer(f"{engine.url}/v1", "other", print)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (SSE + WORD, "the answer ended before it was whole"),
        (SSE, "the answer ended before it was whole"),
        (
            SSE + WORD + b'data: {"error": {"message": "the engine is gone"}}\n\n',
            "the stream broke: the engine is gone",
        ),
        (SSE.replace(b"Connection: close", b"Content-Length: 9999") + WORD, "the stream broke: "),
    ],
)
async def test_a_broken_stream_is_told(answer: bytes, told: str) -> None:
    async with server_saying(answer) as url:
        with pytest.raises(SampleFailed, match=f"^{told}"):
            await stream_answer(url, "m", lambda piece: None)


async def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(SampleFailed, match=r"^the stream broke: "):
        await stream_answer("http://127.0.0.1:1/v1", "m", print)
