"""The real gateway in the test's event loop, on a free port of 127.0.0.1, and what a test may ask of it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import math
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import IO, Any

import openai
from prometheus_client.parser import text_string_to_metric_families

from gateway.config.file import parse
from gateway.server import start
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import RawConnection, Reply, connect, request_bytes
from tests.fakes.scripted import eventually

PATIENT: Mapping[str, Mapping[str, str]] = {"timeouts": {"connect": "20s"}, "health": {"timeout": "20s"}}
"""In place of the defaults that a slow machine could reach although all is well."""


def config(
    *endpoints: str | Mapping[str, Any],
    engine: str = "vllm",
    pool: str = "m",
    pool_options: Mapping[str, Any] | None = None,
    **top: object,
) -> str:
    """A configuration of one pool; an endpoint is a URL or its mapping. JSON is YAML.

    Unless another policy is given, idle endpoints take turns: a test knows who is asked.
    """
    made = [{"url": e, "engine": engine} if isinstance(e, str) else {"engine": engine, **e} for e in endpoints]
    given = dict(pool_options or {})
    patient = {block: {**limits, **given.pop(block, {})} for block, limits in PATIENT.items()}
    turns = {"routing": {"policy": "least_in_flight", **given.pop("routing", {})}}
    return json.dumps({"pools": {pool: {"endpoints": made, **patient, **turns, **given}}, **top}, indent=1)


@dataclass(frozen=True, slots=True)
class Metrics:
    """One scrape.

    Attributes:
        samples: Name, labels and value of each sample.
        text: The scrape as it came.
    """

    samples: tuple[tuple[str, Mapping[str, str], float], ...]
    text: str

    def values(self, name: str, **labels: str) -> list[float]:
        """The values of every series of that name with these labels."""
        wanted = labels.items()
        return [value for key, have, value in self.samples if key == name and wanted <= have.items()]

    def total(self, name: str, **labels: str) -> float:
        """Their sum; 0 where there is none."""
        return math.fsum(self.values(name, **labels))


class Logs:
    """Everything the process has said.

    Attributes:
        access_out: Takes the access lines.
    """

    def __init__(self, stream: IO[bytes], records: list[str]) -> None:
        self._stream = stream
        self._records = records
        self.access_out = io.BytesIO()

    @property
    def text(self) -> str:
        """Access lines, log records, and what was written to standard output and error."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._stream.seek(0)
        written = self.access_out.getvalue() + self._stream.read()
        return written.decode(errors="replace") + "\n".join(self._records)

    async def access(self, count: int, within_s: float = WAIT_S) -> list[dict[str, Any]]:
        """Waits for that many access lines and returns all there are, parsed."""
        await eventually(lambda: self.access_out.getvalue().count(b"\n") >= count, within_s)
        return [json.loads(line) for line in self.access_out.getvalue().splitlines()]


class RunningGateway:
    """One gateway that serves.

    Attributes:
        port: Where it listens, on 127.0.0.1.
        logs: What it has said since it started.
    """

    def __init__(self, port: int, logs: Logs) -> None:
        self.port = port
        self.logs = logs
        self._sdks: list[openai.AsyncOpenAI] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> AbstractAsyncContextManager[RawConnection]:
        """A raw connection."""
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

    async def get(self, path: str, headers: Sequence[tuple[str, str]] = ()) -> Reply:
        return await self.raw(request_bytes("GET", path, headers=headers))

    async def metrics(self) -> Metrics:
        """Scrapes and parses with prometheus_client."""
        reply = await self.get("/metrics")
        assert reply.status == 200, reply.raw[:500]
        text = reply.body.decode()
        samples = tuple(
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        )
        return Metrics(samples, text)

    async def total(self, name: str, **labels: str) -> float:
        """The sum of the series of that name with these labels, now."""
        return (await self.metrics()).total(name, **labels)

    async def settled(self, condition: Callable[[Metrics], bool], within_s: float = WAIT_S) -> Metrics:
        """Scrapes until the condition holds; fails with the last scrape."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while not condition(found := await self.metrics()):
            assert loop.time() < until_s, f"not so within {within_s} s:\n{found.text}"
            await asyncio.sleep(0.01)
        return found

    async def at_rest(self) -> Metrics:
        """Waits until nothing is in flight at any endpoint."""
        return await self.settled(lambda m: all(v == 0 for v in m.values("weir_endpoint_in_flight")))

    async def outcome(self, name: str, count: int = 1, **labels: str) -> Metrics:
        """Waits until that many requests have ended with this outcome, and no other kept count of them."""
        return await self.settled(lambda m: m.total("weir_requests_total", outcome=name, **labels) == count)

    def sdk(self, base_url: str | None = None) -> openai.AsyncOpenAI:
        """The official client as a user would make it, without its own retries."""
        made = openai.AsyncOpenAI(base_url=base_url or f"{self.url}/v1", api_key="x", max_retries=0, timeout=WAIT_S)
        self._sdks.append(made)
        return made

    async def aclose(self) -> None:
        for sdk in self._sdks:
            await sdk.close()


@asynccontextmanager
async def running_gateway(config_text: str, environ: Mapping[str, str] | None = None) -> AsyncGenerator[RunningGateway]:
    """Starts the gateway with this configuration on a free port, and stops it on the way out."""
    listening = config_text if "listen:" in config_text else _with_listen(config_text)
    parsed = parse(listening, source="test", environ=environ or {})
    with _captured() as logs:
        server = await start(parsed, logs.access_out)
        gateway = RunningGateway(server.port, logs)
        try:
            yield gateway
        finally:
            await gateway.aclose()
            async with asyncio.timeout(WAIT_S):
                await server.stop()


def _with_listen(text: str) -> str:
    if text.lstrip().startswith("{"):
        return text.replace("{", '{\n "listen": "127.0.0.1:0",', 1)
    return "listen: 127.0.0.1:0\n" + text


class _ListHandler(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.NOTSET)
        self._lines = lines
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


@contextmanager
def _captured() -> Generator[Logs]:
    """Keeps log records and both standard streams, whether written through ``sys`` or to the descriptors."""
    lines: list[str] = []
    handler = _ListHandler(lines)
    root = logging.getLogger()
    root.addHandler(handler)
    with tempfile.NamedTemporaryFile() as written, open(written.name, "rb") as reader:
        saved_streams, saved_descriptors = (sys.stdout, sys.stderr), (os.dup(1), os.dup(2))
        for descriptor in (1, 2):
            os.dup2(written.fileno(), descriptor)
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(io.FileIO(d, "a", closefd=False), encoding="utf-8", write_through=True) for d in (1, 2)
        )
        try:
            yield Logs(reader, lines)
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
                stream.close()
            sys.stdout, sys.stderr = saved_streams
            for descriptor, saved in zip((1, 2), saved_descriptors, strict=True):
                os.dup2(saved, descriptor)
                os.close(saved)
            root.removeHandler(handler)
