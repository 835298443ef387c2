"""Outputs that take no more: they cost lines, which are counted, and never a request."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import BinaryIO

import pytest

from gateway.access_log import AccessLog
from gateway.config import Config, EndpointConfig, PoolConfig
from gateway.fleet import Fleet
from gateway.flight import FlightRecord

FULL = 1 << 16


def access_log(out: BinaryIO) -> AccessLog:
    endpoints = (EndpointConfig(url="http://127.0.0.1:9", engine="vllm", id="e"),)
    return AccessLog(out, Fleet(Config(pools={"m": PoolConfig(endpoints=endpoints)})))


def record(path: str = "/v1/chat/completions") -> FlightRecord:
    made = FlightRecord("id-1", "POST", path, 10.0, 1_700_000_000.5, [])
    made.outcome, made.done_s = "ok", 11.0
    return made


@contextmanager
def pipe(*, buffered: bool) -> Generator[tuple[int, BinaryIO]]:
    """A pipe that does not block: its reading end, and a file on the writing one."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    os.set_blocking(reading, False)
    raw = io.FileIO(writing, "w", closefd=False)
    out: BinaryIO = io.BufferedWriter(raw) if buffered else raw
    try:
        yield reading, out
    finally:
        os.close(reading)
        os.close(writing)
        out.detach() if isinstance(out, io.BufferedWriter) else out.close()


def warnings(caplog: pytest.LogCaptureFixture) -> int:
    return sum("access lines are lost" in record.getMessage() for record in caplog.records)


class Closed(io.BytesIO):
    def write(self, data: object) -> int:
        raise BrokenPipeError


class ClosedAtFlush(io.BytesIO):
    def flush(self) -> None:
        raise BrokenPipeError


@pytest.mark.parametrize("kind", [Closed, ClosedAtFlush, None])
async def test_a_closed_output_costs_lines_that_are_counted_and_told_of_once(
    kind: type[io.BytesIO] | None, caplog: pytest.LogCaptureFixture
) -> None:
    out = (kind or io.BytesIO)()
    if kind is None:
        out.close()
    log = access_log(out)
    for _ in range(3):
        log.observe((record(),))
        log.observe((record(),))
        log.flush()
    assert log.dropped == 6
    assert warnings(caplog) == 1


@pytest.mark.parametrize("buffered", [True, False])
async def test_a_full_output_loses_whole_lines_and_none_is_broken(
    buffered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with pipe(buffered=buffered) as (reading, out):
        log = access_log(out)
        written = 0
        while log.dropped < 5:
            written += 1
            log.observe((record(f"/v1/{written}"),))
            if written % 7 == 0:
                log.flush()
        read = b""
        for _ in range(3):  # the reader is back
            read += os.read(reading, 10 * FULL)
            log.observe((record("/v1/last"),))
            log.flush()
            written += 1
        read += os.read(reading, 10 * FULL)
        lines = [json.loads(line) for line in read.splitlines()]
        assert read.endswith(b"\n")
        assert len(lines) + log.dropped == written
        assert lines[-1]["path"] == "/v1/last"
        assert warnings(caplog) == 1


async def test_an_output_that_takes_everything_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    out = io.BytesIO()
    log = access_log(out)
    for _ in range(1000):
        log.observe((record(),))
    log.flush()
    assert out.getvalue().count(b"\n") == 1000
    assert (log.dropped, warnings(caplog)) == (0, 0)
