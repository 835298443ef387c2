"""Why a probe failed, as the log and ``/weir/endpoints`` tell it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fakes.certificate import certified
from tests.fakes.probing import probing
from tests.fakes.scripted import eventually, unused_port


async def test_an_engine_that_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    async with probing(f"http://127.0.0.1:{unused_port()}", "vllm"):
        await eventually(lambda: "probe failed: cannot connect: Connect" in caplog.text)


async def test_a_certificate_that_nobody_vouches_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tls, _ = certified(tmp_path)

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(never, "127.0.0.1", 0, ssl=tls)
    async with probing(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", "vllm"):
        await eventually(lambda: "cannot connect: certificate verify failed: self-signed certificate" in caplog.text)
    assert "name its file in SSL_CERT_FILE" in caplog.text, "nothing is cut off"
    server.close()
