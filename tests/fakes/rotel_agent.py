"""Rotel, a receiver of traces that somebody else wrote (in Rust), in front of the tests' own sink."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fakes.otlp_sink import OtlpSink
from tests.fakes.scripted import unused_port

WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Rotel:
    """Where it listens, on 127.0.0.1."""

    http_port: int
    grpc_port: int


@asynccontextmanager
async def rotel_agent(sink: OtlpSink) -> AsyncGenerator[Rotel]:
    """Starts it; it passes on to the sink at once, as protobuf, what it could read."""
    found = find_spec("rotel")
    if found is None or found.origin is None:
        pytest.skip("rotel is not installed")
    ports = Rotel(unused_port(), unused_port())
    process = await asyncio.create_subprocess_exec(
        Path(found.origin).with_name("rotel-agent"),
        "start",
        f"--otlp-http-endpoint=127.0.0.1:{ports.http_port}",
        f"--otlp-grpc-endpoint=127.0.0.1:{ports.grpc_port}",
        "--exporter=otlp",
        f"--otlp-exporter-endpoint={sink.url}",
        "--otlp-exporter-protocol=http",
        "--disable-batching",
        stdout=DEVNULL,
        stderr=DEVNULL,
    )
    try:
        async with asyncio.timeout(WAIT_S):
            for port in (ports.http_port, ports.grpc_port):
                await _listening(port, process)
        yield ports
    finally:
        process.terminate()
        async with asyncio.timeout(WAIT_S):
            await process.wait()


async def _listening(port: int, process: Process) -> None:
    while True:
        assert process.returncode is None, "rotel has ended"
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            await writer.wait_closed()
            return
