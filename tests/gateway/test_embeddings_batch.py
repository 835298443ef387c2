"""Small embedding requests that go to the engine as one: who is joined with whom, and that nobody notices."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from gateway import embedding_batcher
from tests.fakes.flights import watched_flights
from tests.fakes.gateway import Metrics, RunningGateway, config, running_gateway
from tests.fakes.raw_client import RawConnection, Reply, request_bytes
from tests.fakes.scripted import Answer, Request, Script, ScriptedUpstream, eventually, gate, hang, json_answer, rst
from tests.gateway.client.test_cycles import garbage

LONG = {"inputs": 8, "wait": "30s"}
"""Nothing goes out by the timer: a batch is full, or it waits."""


def vector(value: object) -> str:
    """What the engine makes of an input; in a spelling that no JSON library would choose."""
    return f"[{len(json.dumps(value))}.500, -1.0e-05]"


def embedded(request: Request) -> Script:
    """A whole answer to whatever was asked for, one token a character."""
    asked: Any = request.json()["input"]
    items: list[Any] = [asked] if isinstance(asked, str) or isinstance(asked[0], int) else asked
    base64 = request.json().get("encoding_format") == "base64"
    data = [
        f'{{"object":"embedding","index":{at},"embedding":{json.dumps(str(item)) if base64 else vector(item)}}}'
        for at, item in enumerate(items)
    ]
    tokens = sum(map(len, items))
    usage = f'{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}'
    body = f'{{"object":"list","data":[{",".join(data)}],"model":"engine-model","usage":{usage}}}'
    return json_answer(body.encode())


def is_joined(request: Request) -> bool:
    return isinstance(request.json()["input"], list) and len(request.json()["input"]) > 1


def of_pool(*urls: str, batch: object = LONG, **options: object) -> str:
    made = [{"url": url, "model": "engine-model"} for url in urls]
    return config(*made, pool_options={"embeddings_batch": batch, **options})


def body(value: object, **fields: object) -> dict[str, object]:
    return {"model": "m", "input": value, **fields}


async def asked(gw: RunningGateway, *bodies: object) -> list[Reply]:
    """Sends them all at once, in this order, and waits for every answer."""
    async with clients(gw, *bodies) as connections:
        return [await connection.reply() for connection in connections]


@asynccontextmanager
async def clients(gw: RunningGateway, *bodies: object) -> AsyncGenerator[list[RawConnection]]:
    """Connections that have sent these, each read by the gateway before the next."""
    async with AsyncExitStack() as stack:
        connections: list[RawConnection] = []
        for each in bodies:
            connection = await stack.enter_async_context(gw.connect())
            headers = [("x-request-id", f"r{len(connections)}")]
            before = _begun(await gw.metrics())
            await connection.send(request_bytes("POST", "/v1/embeddings", each, headers))
            connections.append(connection)
            if each is not bodies[-1]:
                await gw.settled(partial(_has_more, before))
        yield connections


def _begun(scrape: Metrics) -> float:
    """Requests that the gateway has taken so far."""
    return scrape.total("weir_requests_total", operation="embeddings") + scrape.total("weir_requests_in_flight")


def _has_more(before: float, scrape: Metrics) -> bool:
    return _begun(scrape) > before


def vectors(reply: Reply) -> list[Any]:
    return [item["embedding"] for item in reply.json()["data"]]


EIGHT = [["a"], ["bb", "ccc"], ["dd"], ["e", "f", "gg"], ["hhh"]]
"""What five clients want, a batch together."""


async def test_requests_are_joined_and_each_gets_its_own_answer() -> None:
    async with ScriptedUpstream(embedded) as u, running_gateway(of_pool(u.url)) as gw:
        replies = await asked(gw, *map(body, EIGHT))
        assert [request.json() for request in u.requests] == [
            {"model": "engine-model", "input": ["a", "bb", "ccc", "dd", "e", "f", "gg", "hhh"]}
        ]
        for place, (reply, items) in enumerate(zip(replies, EIGHT, strict=True)):
            assert reply.status == 200
            assert reply.json()["model"] == "m"
            assert [item["index"] for item in reply.json()["data"]] == list(range(len(items)))
            assert all(vector(item).encode() in reply.body for item in items)
            assert len(vectors(reply)) == len(items)
            assert reply.header("x-request-id") == f"r{place}"
            assert (reply.header("x-weir-endpoint"), reply.header("x-weir-attempts")) == ("m-0", "1")
        assert sum(reply.json()["usage"]["prompt_tokens"] for reply in replies) == 15
        assert u.last.header("x-request-id") == b"r0"


async def test_each_keeps_its_record_its_line_and_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    flights = watched_flights(monkeypatch)
    async with ScriptedUpstream(embedded) as u, running_gateway(of_pool(u.url)) as gw:
        replies = await asked(gw, *map(body, EIGHT))
        await flights.ended(len(EIGHT))
        lines = await gw.logs.access(len(EIGHT))
        assert {line["request_id"] for line in lines} == {f"r{place}" for place in range(len(EIGHT))}
        assert {(line["outcome"], line["status"], line["endpoint"]) for line in lines} == {("ok", 200, "m-0")}
        assert sum(line["input_tokens"] for line in lines) == 15
        waits = {line["request_id"]: line["queue_s"] for line in lines}
        assert waits["r0"] > waits["r4"]
        for reply in replies:
            times = dict(part.split(";dur=") for part in (reply.header("server-timing") or "").split(", "))
            assert 0 <= float(times["queue"]) <= float(times["total"])
            assert min(map(float, times.values())) >= 0
        scrape = await gw.metrics()
        assert scrape.values("weir_embeddings_batch_inputs_count", pool="m", model="m") == [1]
        assert scrape.values("weir_embeddings_batch_inputs_sum") == [8]
        assert scrape.total("weir_endpoint_attempts_total", outcome="ok") == len(EIGHT)
        assert scrape.total("weir_endpoint_connect_seconds_count") == 1
        assert scrape.total("weir_tokens_total", type="input") == 15


async def test_base64_is_passed_as_it_is() -> None:
    sent = [body(["a", "b", "c", "d"], encoding_format="base64"), body(["e", "f", "g", "h"], encoding_format="base64")]
    async with ScriptedUpstream(embedded) as u, running_gateway(of_pool(u.url)) as gw:
        replies = await asked(gw, *sent)
        assert len(u.requests) == 1
        assert [vectors(reply) for reply in replies] == [list("abcd"), list("efgh")]


async def test_token_ids_are_joined_as_lists() -> None:
    async with ScriptedUpstream(embedded) as u, running_gateway(of_pool(u.url, batch={**LONG, "inputs": 2})) as gw:
        replies = await asked(gw, body([1, 2]), body([[3, 4, 5]]))
        assert u.last.json()["input"] == [[1, 2], [3, 4, 5]]
        assert [len(vectors(reply)) for reply in replies] == [1, 1]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (body("aa"), body("bb", dimensions=8)),
        (body("aa", dimensions=4), body("bb", dimensions=8)),
        (body("aa", encoding_format="float"), body("bb", encoding_format="base64")),
        (body("aa", user="a"), body("bb", user="b")),
        (body("aa"), {"model": "other", "input": "bb"}),
        (body("aa"), body([1])),
        (body("aa"), body("b" * 40)),
    ],
)
async def test_requests_that_differ_are_never_joined(a: dict[str, object], b: dict[str, object]) -> None:
    batch = {"inputs": 4, "wait": "30s"}
    async with (
        ScriptedUpstream(embedded) as u,
        running_gateway(of_pool(u.url, batch=batch, aliases=["other"])) as gw,
    ):
        sent = [a, b, a, b, a, b, a, b]
        replies = await asked(gw, *sent)
        assert len(u.requests) == 2
        for request in u.requests:
            assert len(request.json()["input"]) == 4
            assert len({str(item) for item in request.json()["input"]}) == 1
        assert [reply.json()["model"] for reply in replies] == [each["model"] for each in sent]


async def test_a_credential_that_is_passed_on_keeps_requests_apart() -> None:
    options = {"batch": {"inputs": 2, "wait": "30s"}, "forward_authorization": True}
    async with ScriptedUpstream(embedded) as u, running_gateway(of_pool(u.url, **options)) as gw, AsyncExitStack() as s:
        connections: list[RawConnection] = []
        for key in ("k1", "k2", "k1", "k2"):
            connection = await s.enter_async_context(gw.connect())
            headers = [("authorization", f"Bearer {key}")]
            await connection.send(request_bytes("POST", "/v1/embeddings", body(key), headers))
            connections.append(connection)
        for connection in connections:
            assert (await connection.reply()).status == 200
        assert sorted((request.header("authorization"), *request.json()["input"]) for request in u.requests) == [
            (b"Bearer k1", "k1", "k1"),
            (b"Bearer k2", "k2", "k2"),
        ]


@pytest.mark.parametrize(
    "value", [["a"] * 5, "a" * 33_000, "", [], [""], ["a", "b" * 40], {"image": 1}, ["a", 1], "a" * 20_000]
)
async def test_what_is_large_or_odd_goes_alone_at_once_and_unchanged(value: object) -> None:
    sent = json.dumps(body(value)).encode()
    options: dict[str, object] = {"batch": {**LONG, "tokens": 4096}}
    async with (
        ScriptedUpstream(json_answer({"data": [], "model": "engine-model"})) as u,
        running_gateway(of_pool(u.url, **options)) as gw,
    ):
        assert (await gw.post(sent, "/v1/embeddings")).status == 200
        assert u.last.body == sent.replace(b'"m"', b'"engine-model"', 1)


async def test_off_by_default_every_request_is_its_own_and_passes_byte_for_byte() -> None:
    sent = [b'{ "input" : "a",  "model":"m" }', b'{"model":"m","input":"b"}']
    async with ScriptedUpstream(embedded) as u, running_gateway(config(u.url)) as gw:
        replies = await asked(gw, *sent)
        assert [request.body for request in u.requests] == sent
        assert [reply.status for reply in replies] == [200, 200]
        assert await gw.total("weir_embeddings_batch_inputs_count") == 0


async def test_one_that_finds_no_company_goes_out_after_the_wait_as_it_came() -> None:
    sent = b'{ "input" : "a",  "model":"engine-model" }'
    pool = {"embeddings_batch": {"inputs": 8}}
    async with (
        ScriptedUpstream(embedded) as u,
        running_gateway(config(u.url, pool="engine-model", pool_options=pool)) as gw,
    ):
        assert (await gw.post(sent, "/v1/embeddings")).status == 200
        assert u.last.body == sent
        assert await gw.total("weir_embeddings_batch_inputs_sum") == 1


async def test_the_first_of_a_batch_begins_its_only_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    batchers: list[embedding_batcher.EmbeddingBatcher] = []
    made = embedding_batcher.EmbeddingBatcher.__init__

    def keep(self: embedding_batcher.EmbeddingBatcher, *args: Any) -> None:
        made(self, *args)
        batchers.append(self)

    monkeypatch.setattr(embedding_batcher.EmbeddingBatcher, "__init__", keep)
    async with (
        ScriptedUpstream(embedded) as u,
        running_gateway(of_pool(u.url, batch={**LONG, "wait": "2s"})) as gw,
        clients(gw, body("a"), body("b")) as (first, second),
    ):
        await gw.settled(lambda m: m.total("weir_endpoint_in_flight") == 2)
        ((waiting,),) = batchers[0]._waiting.values()  # pyright: ignore[reportPrivateUsage]
        assert len(waiting.members) == 2
        assert waiting.timer is not None
        begun_s = waiting.timer.when() - 2.0
        assert not u.requests
        assert [(await each.reply()).status for each in (first, second)] == [200, 200]
        assert u.last.json()["input"] == ["a", "b"]
        assert u.last.arrived_s - begun_s >= 1.98
        assert waiting.timer is None
        assert not batchers[0]._waiting  # pyright: ignore[reportPrivateUsage]


# --- failures


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_one_clients_mistake_is_its_own(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    flights = watched_flights(monkeypatch)

    def picky(request: Request) -> Script:
        if "bad" in request.json()["input"]:
            return json_answer({"error": {"message": "no such token", "code": status}}, status)
        return embedded(request)

    async with (
        ScriptedUpstream(picky) as u,
        running_gateway(of_pool(u.url, batch={**LONG, "inputs": 3}, retries={"attempts": 1})) as gw,
    ):
        replies = await asked(gw, body("one"), body("bad"), body("two"))
        assert [reply.status for reply in replies] == [200, status, 200]
        assert replies[1].error["message"] == "no such token"
        assert sorted(str(request.json()["input"]) for request in u.requests[1:]) == ["bad", "one", "two"]
        assert {reply.header("x-weir-attempts") for reply in replies} == {"2"}
        await flights.ended(3)
        assert sorted(str(record.outcome) for record in flights.closed) == ["client_error", "ok", "ok"]
        assert await gw.total("weir_retries_total") == 0


async def test_the_time_of_a_joined_request_that_is_refused_is_told_as_lost_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flights = watched_flights(monkeypatch)
    opened = asyncio.Event()

    def none_joined(request: Request) -> Script:
        if is_joined(request):
            return [gate(opened), *json_answer({"error": {"message": "one at a time", "code": 400}}, 400)]
        return embedded(request)

    async with (
        ScriptedUpstream(none_joined) as u,
        running_gateway(of_pool(u.url, batch={**LONG, "inputs": 2})) as gw,
        clients(gw, body("a"), body("bb")) as connections,
    ):
        await u.arrived()
        await asyncio.sleep(0.1)  # how long the engine takes, at least
        opened.set()
        replies = [await connection.reply() for connection in connections]
        for place, reply in enumerate(replies):
            assert vectors(reply) == [[3.5 + place, -1e-05]]
            record = (await gw.get(f"/weir/requests/r{place}")).json()
            joined, alone = record["attempts"]
            assert (joined["error_type"], joined["status"], alone["status"]) == ("not_joined", 400, 200)
            assert record["slowest_phase"] == "retries"
            assert "to 1 failed attempt (m-0: not_joined)" in record["verdict"]
            assert sum(part["duration_s"] for part in record["phases"]) == pytest.approx(record["duration_s"])
            told = re.search(r"retries;dur=([\d.]+)", reply.header("server-timing") or "")
            assert told is not None
            assert float(told[1]) >= 100
        assert await gw.total("weir_endpoint_attempts_total", outcome="client_error") == 2
        assert await gw.total("weir_endpoint_attempts_total", outcome="ok") == 2
        assert await gw.total("weir_route_choices_total") == 2
        assert await gw.total("weir_route_duration_seconds_count") == 2
        assert len({attempt.span_id for record in flights.closed for attempt in record.attempts}) == 4


async def test_an_answer_that_cannot_be_told_apart_is_asked_for_again_one_by_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def one_only(request: Request) -> Script:
        if is_joined(request):
            return json_answer({"data": [{"index": 0, "embedding": [1]}], "model": "engine-model"})
        return embedded(request)

    caplog.set_level(logging.WARNING)
    async with ScriptedUpstream(one_only) as u, running_gateway(of_pool(u.url, batch={**LONG, "inputs": 2})) as gw:
        for _ in range(2):
            replies = await asked(gw, body("a"), body("bb"))
            assert [vectors(reply) for reply in replies] == [[[3.5, -1e-05]], [[4.5, -1e-05]]]
        assert len(u.requests) == 6
    assert sum("no joined embeddings" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("script", [json_answer({"error": "x"}, 502), [rst()], json_answer({"error": "x"}, 503)])
async def test_after_an_engines_failure_each_is_retried_alone_elsewhere(script: Script) -> None:
    """It counts once against the engine: three failures in a row would eject it."""
    async with (
        ScriptedUpstream(script) as a,
        ScriptedUpstream(embedded) as b,
        running_gateway(of_pool(a.url, b.url, batch={"inputs": 4, "wait": "4s"})) as gw,
    ):
        # The endpoints take turns: four go to one of them, which are a batch, and three to the other, by the timer
        replies = await asked(gw, *[body(text) for text in "abcdefg"])
        assert [reply.status for reply in replies] == [200] * 7
        assert len(a.requests) == 1
        failed = len(a.last.json()["input"])
        assert failed >= 3
        assert sum(reply.header("x-weir-attempts") == "2" for reply in replies) == failed
        assert sorted(is_joined(request) for request in b.requests) == [False] * failed + [True]
        scrape = await gw.metrics()
        assert scrape.values("weir_endpoint_healthy") == [1, 1]
        assert scrape.total("weir_retries_total") == failed


async def test_a_busy_engines_word_on_when_to_come_back_is_passed_to_each() -> None:
    busy = json_answer({"error": {"message": "later"}}, 429, ("retry-after", "7"))
    async with ScriptedUpstream(busy) as u, running_gateway(of_pool(u.url, batch={**LONG, "inputs": 2})) as gw:
        replies = await asked(gw, body("a"), body("b"))
        assert [(reply.status, reply.header("retry-after")) for reply in replies] == [(429, "7")] * 2
        assert len(u.requests) == 1


async def test_a_fault_of_ours_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Sequence[object]:
        raise ZeroDivisionError

    monkeypatch.setattr(embedding_batcher, "split", broken)
    async with ScriptedUpstream(embedded) as u, running_gateway(of_pool(u.url, batch={**LONG, "inputs": 2})) as gw:
        replies = await asked(gw, body("a"), body("b"))
        assert [reply.error["code"] for reply in replies] == ["internal_error"] * 2
        await gw.at_rest()


async def test_a_request_whose_time_is_over_ends_alone_while_it_waits() -> None:
    options = {"timeouts": {"total": "200ms"}}
    async with ScriptedUpstream(embedded) as u, running_gateway(of_pool(u.url, **options)) as gw:
        (reply,) = await asked(gw, body("a"))
        assert (reply.status, reply.error["code"]) == (504, "upstream_timeout")
        assert not u.requests
        await gw.at_rest()


# --- clients that leave


async def test_a_client_that_leaves_while_it_waits_is_taken_out() -> None:
    async with (
        ScriptedUpstream(embedded) as u,
        running_gateway(of_pool(u.url, batch={**LONG, "inputs": 3})) as gw,
        clients(gw, body("a"), body("b")) as (first, second),
    ):
        await gw.settled(lambda m: m.total("weir_endpoint_in_flight") == 2)
        first.reset()
        await gw.outcome("cancelled", 1)
        left = (await gw.get("/weir/requests/r0")).json()
        assert left["slowest_phase"] == "queue"
        assert "engine_wait" not in {part["name"] for part in left["phases"]}
        others = await asked(gw, body("c"), body("d"))
        assert u.last.json()["input"] == ["b", "c", "d"]
        assert vectors(await second.reply()) == [[3.5, -1e-05]]
        assert [reply.status for reply in others] == [200, 200]


async def test_a_batch_without_clients_is_never_sent() -> None:
    async with (
        ScriptedUpstream(embedded) as u,
        running_gateway(of_pool(u.url, batch={**LONG, "inputs": 2})) as gw,
        clients(gw, body("a")) as (only,),
    ):
        await gw.settled(lambda m: m.total("weir_endpoint_in_flight") == 1)
        only.reset()
        await gw.outcome("cancelled", 1)
        assert [reply.status for reply in await asked(gw, body("b"), body("c"))] == [200, 200]
        assert [request.json()["input"] for request in u.requests] == [["b", "c"]]


async def test_a_client_that_leaves_later_takes_nothing_from_the_others() -> None:
    opened = asyncio.Event()

    def answer(request: Request) -> Script:
        return [gate(opened), *embedded(request)]

    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(of_pool(u.url, batch={**LONG, "inputs": 2})) as gw,
        clients(gw, body("a"), body("bb")) as (first, second),
    ):
        await u.arrived()
        first.reset()
        await gw.outcome("cancelled", 1)
        opened.set()
        reply = await second.reply()
        assert vectors(reply) == [[4.5, -1e-05]]
        assert reply.json()["usage"]["prompt_tokens"] == 2
        assert len(u.requests) == 1


async def test_when_the_last_client_leaves_the_engine_is_let_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.upstream.native.RELEASE_GRACE_S", 3600.0)
    async with (
        ScriptedUpstream([hang()]) as u,
        running_gateway(of_pool(u.url, batch={**LONG, "inputs": 2})) as gw,
        clients(gw, body("a"), body("b")) as (first, second),
    ):
        request = await u.arrived()
        first.reset()
        await gw.outcome("cancelled", 1)
        assert not request.left.is_set()
        second.reset()
        await eventually(request.left.is_set)
        await gw.outcome("cancelled", 2)
        scrape = await gw.at_rest()
        assert scrape.total("weir_endpoint_attempts_total", outcome="cancelled") == 2
        assert scrape.values("weir_endpoint_healthy") == [1]


# --- what is left behind


@pytest.mark.parametrize(
    "script",
    [
        embedded,
        json_answer({"error": {"message": "no"}}, 500),
        json_answer({"error": {"message": "no"}}, 404),
        [rst()],
        json_answer(b"nonsense"),
    ],
)
async def test_a_batch_leaves_nothing_that_only_the_collector_could_free(script: Answer | Script) -> None:
    async with ScriptedUpstream(script) as u, running_gateway(of_pool(u.url, batch={**LONG, "inputs": 2})) as gw:
        await asked(gw, body("a"), body("b"))
        with garbage() as found:
            await asked(gw, body("c"), body("d"))
            await gw.at_rest()
        assert not found


async def test_an_input_that_an_engine_fails_at_is_nobody_elses_failure() -> None:
    """llama.cpp answers 500 to an input that is too large."""

    def too_large(request: Request) -> Script:
        if "huge" in str(request.json()["input"]):
            return json_answer({"error": {"message": "input is too large to process"}}, 500)
        return embedded(request)

    async with ScriptedUpstream(too_large) as u, running_gateway(of_pool(u.url, batch={**LONG, "inputs": 3})) as gw:
        replies = await asked(gw, body("abcd"), body("huge"), body("efgh"))
        assert [reply.status for reply in replies] == [200, 500, 200]
