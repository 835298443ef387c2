"""Where Weir's own machine lets no connection be opened: no engine is blamed, and it is said."""

from __future__ import annotations

import re
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.gateway import config
from tests.fakes.raw_client import connect, r0, request_bytes
from tests.fakes.scripted import ScriptedUpstream, chat_stream, unused_port
from tests.fakes.weir_process import WeirProcess, ended_well, weir
from tests.gateway.test_ejection import health

FILES = resource.RLIMIT_NOFILE


@contextmanager
def no_more_files(process: WeirProcess) -> Generator[None]:
    """It may open none beside those that it has."""
    soft, hard = resource.prlimit(process.pid, FILES)
    resource.prlimit(process.pid, FILES, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(process.pid, FILES, (soft, hard))


@pytest.mark.parametrize("transport", ["native", "httpx2"])
async def test_no_file_left_ejects_nobody_and_the_client_may_come_again(transport: str, tmp_path: Path) -> None:
    port = unused_port()
    async with ScriptedUpstream(chat_stream("ab")) as u:
        endpoints = {"url": u.url, "transport": transport}, u.url + "/"
        text = config(*endpoints, listen=f"127.0.0.1:{port}", pool_options=health(failures=1))
        async with weir("serve", "-c", written(tmp_path, text)) as process:
            await process.says("serving m on")
            async with connect(port) as client:
                await client.send(request_bytes("GET", "/weir/endpoints"))
                await client.read_until(b"]")  # the connection is accepted: files are needed for engines alone
                with no_more_files(process):
                    for number in range(3):
                        headers = [("x-request-id", f"r{number}")]
                        await client.send(request_bytes("POST", "/v1/chat/completions", r0(), headers))
                        told = await client.read_until(b'"request_id":"r%d"' % number)
                        assert b"HTTP/1.1 503 " in told
                        assert re.search(rb'"code":"no_connection","weir":\{"stage":"connect",.*"retryable":true', told)
                    probes = len(u.probes)
                    await process.says("no engine is to blame")
                    assert len(u.probes) == probes
            async with connect(port) as client:
                await client.send(request_bytes("POST", "/v1/chat/completions", r0()))
                assert (await client.reply()).content() == "ab"
            assert b"ejected" not in process.err
            process.signal()
            await ended_well(process)


async def test_it_takes_as_many_files_as_the_system_lets_it(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(FILES)
    path = written(tmp_path, config("http://127.0.0.1:9", listen=f"127.0.0.1:{unused_port()}"))
    resource.setrlimit(FILES, (min(soft, 512), hard))
    try:
        async with weir("serve", "-c", path) as process:
            await process.says("serving m on")
            assert resource.prlimit(process.pid, FILES) == (hard, hard)
            process.signal()
            await ended_well(process)
    finally:
        resource.setrlimit(FILES, (soft, hard))


def written(folder: Path, text: str) -> str:
    path = folder / "weir.yaml"
    path.write_text(text, "utf-8")
    return str(path)
