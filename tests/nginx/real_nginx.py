"""A real nginx with ``nginx/weir.conf`` as it is shipped: only the two ports are others."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.patience import WAIT_S
from tests.fakes.program import stopped_at_the_end
from tests.fakes.raw_client import RawConnection, Reply, connect, request_bytes
from tests.fakes.scripted import unused_port

CONF = Path(__file__).resolve().parents[2] / "nginx" / "weir.conf"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")

needs_nginx = [
    pytest.mark.nginx,
    pytest.mark.skipif(NGINX is None, reason="nginx is missing; on Debian: apt-get install nginx-light"),
]

# What surrounds the file is set to what would spoil streams, so that it is seen to hold whatever it is included in.
TOP = """\
{user}worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    types {{ text/html html; }}
    gzip on;
    gzip_types *;
    gzip_min_length 0;
    gzip_proxied any;
    proxy_buffering on;
    proxy_ignore_client_abort on;
    proxy_intercept_errors on;
    proxy_next_upstream error timeout http_502 http_503 non_idempotent;
    proxy_set_header X-Request-Id outer;
    proxy_read_timeout 1s;
    client_max_body_size 1m;
    include {folder}/weir.conf;
}}
"""


@dataclass(frozen=True, slots=True)
class Nginx:
    """One nginx that serves.

    Attributes:
        port: Where it listens, on 127.0.0.1.
    """

    port: int

    def connect(self) -> AbstractAsyncContextManager[RawConnection]:
        return connect(self.port)

    async def raw(self, data: bytes, within_s: float = WAIT_S) -> Reply:
        """Sends bytes, reads one whole answer and leaves."""
        async with self.connect() as connection:
            await connection.send(data)
            return await connection.reply(within_s, data.split(b" ", 1)[0].decode())

    async def post(
        self, body: object, path: str = "/v1/chat/completions", headers: Sequence[tuple[str, str]] = ()
    ) -> Reply:
        return await self.raw(request_bytes("POST", path, body, headers))

    async def get(self, path: str) -> Reply:
        return await self.raw(request_bytes("GET", path))


def write_configuration(folder: Path, port: int, weir_port: int) -> Path:
    """Writes the shipped file with these ports, and one that includes it; returns the path of the latter."""
    shipped = CONF.read_text()
    for directive, replacement in (
        ("listen 80;", f"listen 127.0.0.1:{port};"),
        ("server 127.0.0.1:8080;", f"server 127.0.0.1:{weir_port};"),
    ):
        assert shipped.count(directive) == 1, directive
        shipped = shipped.replace(directive, replacement)
    (folder / "weir.conf").write_text(shipped)
    # As root, workers would be another user, who may not enter the test's folder.
    user = "user root;\n" if os.geteuid() == 0 else ""
    top = folder / "nginx.conf"
    top.write_text(TOP.format(folder=folder, user=user))
    return top


@asynccontextmanager
async def running_nginx(folder: Path, weir_port: int) -> AsyncGenerator[Nginx]:
    """Starts nginx in front of that port, and stops it on the way out."""
    assert NGINX is not None
    port = unused_port()
    top = write_configuration(folder, port, weir_port)
    said = folder / "stderr.log"
    with said.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(NGINX, "-p", str(folder), "-c", str(top)), stdin=asyncio.subprocess.DEVNULL, stderr=stderr
        )
    async with stopped_at_the_end(process):
        async with asyncio.timeout(WAIT_S):
            while not await _accepts(port):
                assert process.returncode is None, f"nginx did not start: {said.read_text()}"
        yield Nginx(port)


async def _accepts(port: int) -> bool:
    """Whether somebody listens; waits a moment if not."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        await asyncio.sleep(0.01)
        return False
    writer.close()
    await writer.wait_closed()
    return True
