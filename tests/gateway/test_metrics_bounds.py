"""Whatever clients and engines send, the numbers stay few and small."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Generator
from typing import BinaryIO

import pytest

from gateway.app import App
from gateway.config.file import parse
from tests.fakes.flown import samples
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0
from tests.fakes.scripted import ScriptedUpstream, completion, json_answer

MODELS = 20_000  # with 100,000 it holds as well, and takes half a minute


def resident_bytes() -> int:
    """The most that this process has had in memory."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


async def ask(app: App, model: str) -> int:
    """Calls the application without a server; returns the status."""
    body = b'{"messages":[],"model":"%b"}' % model.encode()
    statuses: list[int] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])  # type: ignore[arg-type]

    scope: dict[str, object] = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "raw_path": b"/v1/chat/completions",
        "query_string": b"",
        "headers": [],
        "http_version": "1.1",
    }
    await app(scope, receive, send)  # type: ignore[arg-type]
    (status,) = statuses
    return status


@pytest.fixture
def nowhere() -> Generator[BinaryIO]:
    with open(os.devnull, "wb") as out:
        yield out


async def test_unknown_models_make_no_series_and_take_no_memory(nowhere: BinaryIO) -> None:
    app = App(parse(config("http://127.0.0.1:9"), source="test", environ={}), nowhere)
    for n in range(2000):  # until all that is made once is made
        assert await ask(app, f"unknown-{n}") == 404
    series, before_bytes = set(samples(app.metrics.render())), resident_bytes()
    for n in range(MODELS):
        await ask(app, f"{n}")
    assert set(samples(app.metrics.render())) == series
    assert resident_bytes() - before_bytes < 5_000_000  # a counter for each would take twice as much
    await app.fleet.aclose()
    app.flush()


async def test_headers_of_a_megabyte_make_no_series() -> None:
    megabyte = "x" * 1_000_000
    names = ("x-request-id", "traceparent", "user-agent", "authorization", "x-forwarded-for", "accept", "content-type")
    async with ScriptedUpstream(json_answer(completion())) as u:
        text = config(u.url, limits_http={"header": "4MiB"})
        async with running_gateway(text) as gw:
            assert (await gw.post(r0(stream=False))).status == 200
            before = after = await gw.outcome("ok")
            for count, name in enumerate(names, start=2):
                assert (await gw.post(r0(stream=False), headers=[(name, megabyte)])).status == 200
                after = await gw.outcome("ok", count)
            assert "xxxx" not in after.text
            assert {(name, *sorted(labels.items())) for name, labels, _ in after.samples} == {
                (name, *sorted(labels.items())) for name, labels, _ in before.samples
            }
            scrape = await gw.get("/metrics", [("accept", megabyte), ("accept-encoding", megabyte)])
            assert scrape.status == 200


async def test_hostile_names_of_the_configuration_can_be_read_back() -> None:
    pool = 'a"b\\c{d}=%s,é'
    async with ScriptedUpstream(json_answer(completion())) as u, running_gateway(config(u.url, pool=pool)) as gw:
        assert (await gw.post(r0(model=pool, stream=False))).status == 200
        scrape = await gw.outcome("ok")
        assert scrape.values("weir_requests_total", pool=pool, model=pool) == [1]
        reply = await gw.get("/metrics", [("accept", "application/openmetrics-text;version=1.0.0")])
        assert [name for name, labels in samples(reply.body.decode()) if ("pool", pool) in labels]
