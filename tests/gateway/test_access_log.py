"""The access line: JSON whatever a client sends, the fields that dashboards read, and few writes."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.types import Usage
from gateway.access_log import FLUSH_BYTES, AccessLog
from gateway.config import Config, EndpointConfig, PoolConfig
from gateway.config.file import parse
from gateway.fleet import Fleet
from gateway.flight import AttemptRecord, FlightRecord
from gateway.server import start
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import connect, r0, request_bytes
from tests.fakes.scripted import ScriptedUpstream, chat_stream, completion, eventually, json_answer

FIELDS: dict[str, type | tuple[type, ...]] = {
    "ts": float,
    "level": str,
    "msg": str,
    "trace_id": str,
    "span_id": str,
    "trace_sampled": bool,
    "request_id": str,
    "pool": str,
    "model": str,
    "endpoint": str,
    "engine": str,
    "operation": str,
    "stream": bool,
    "status": int,
    "outcome": str,
    "error_type": (str, type(None)),
    "ttft_s": (float, type(None)),
    "duration_s": float,
    "queue_s": float,
    "longest_gap_s": float,
    "input_tokens": (int, type(None)),
    "output_tokens": (int, type(None)),
    "tokens_source": (str, type(None)),
    "attempts": int,
}
"""Name and type of each field that observability asks for; there may be more."""


class Out(io.BytesIO):
    """Counts the writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, data: Any) -> int:
        self.writes += 1
        return super().write(data)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


def fleet() -> Fleet:
    endpoints = (EndpointConfig(url="http://127.0.0.1:9", engine="vllm", id="e"),)
    return Fleet(Config(pools={"m": PoolConfig(endpoints=endpoints)}))


def record(**changes: Any) -> FlightRecord:
    made = FlightRecord("id-1", "POST", "/v1/chat/completions", 10.0, 1_700_000_000.5, [])
    for name, value in {"outcome": "ok", "done_s": 11.0, "operation": "chat", **changes}.items():
        setattr(made, name, value)
    return made


def checked(line: dict[str, Any]) -> dict[str, Any]:
    for name, kind in FIELDS.items():
        assert isinstance(line[name], kind), (name, line[name])
    assert (line["level"], line["msg"]) == ("info", "request")
    return line


async def test_a_record_becomes_one_line_with_every_field() -> None:
    out = Out()
    log = AccessLog(out, fleet())
    flown = record(
        pool="m",
        model="m",
        stream=True,
        status=200,
        body_read_s=10.25,
        admitted_s=10.5,
        first_output_s=10.75,
        usage=Usage(7, 3),
        chunks=2,
        trace_id="a" * 32,
        span_id="b" * 16,
        keep_reason="slow",
        attempts=[AttemptRecord("e", "why", 10.5)],
    )
    log.observe((flown,))
    log.flush()
    (line,) = out.lines
    checked(line)
    assert out.getvalue().endswith(b"\n")
    assert (line["trace_id"], line["span_id"], line["trace_sampled"]) == ("a" * 32, "b" * 16, True)
    assert (line["endpoint"], line["engine"], line["attempts"]) == ("e", "vllm", 1)
    assert (line["input_tokens"], line["output_tokens"], line["tokens_source"]) == (7, 3, "usage")
    assert (line["queue_s"], line["ttft_s"], line["duration_s"]) == (0.25, 0.5, 0.75)
    assert line["ts"] == 1_700_000_000.5


@pytest.mark.parametrize(
    ("usage", "told"),
    [(None, [None, None, None]), (Usage(7, 3), [7, 3, "usage"]), (Usage(7, 3, estimated=True), [7, 3, "estimate"])],
)
async def test_tokens_that_nobody_counted_say_so(usage: Usage | None, told: list[object]) -> None:
    out = Out()
    log = AccessLog(out, fleet())
    log.observe((record(usage=usage),))
    log.flush()
    (line,) = out.lines
    assert [line[name] for name in ("input_tokens", "output_tokens", "tokens_source")] == told


async def test_what_became_of_a_broken_stream_is_in_its_line_and_in_no_other() -> None:
    out = Out()
    log = AccessLog(out, fleet())
    log.observe((record(resume="budget", not_resumed='"used" up'), record(resume="resumed"), record()))
    log.flush()
    assert [(line["resume"], line["not_resumed"]) for line in out.lines[:2]] == [
        ("budget", '"used" up'),
        ("resumed", None),
    ]
    assert "resume" not in out.lines[2]


@pytest.mark.parametrize("error_type", [None, "500", "connect", "first_token_timeout"])
async def test_a_request_that_reached_no_engine_has_a_line_too(error_type: str | None) -> None:
    out = Out()
    log = AccessLog(out, fleet())
    log.observe((record(outcome="client_error", status=400, error_type=error_type),))
    log.flush()
    line = checked(out.lines[0])
    assert line["error_type"] == error_type
    assert (line["endpoint"], line["engine"], line["ttft_s"], line["input_tokens"]) == ("", "", None, None)


ODD = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(['"', "\\", "\x00", "\n", "\u2028", "é😀"])


@settings(deadline=None)
@given(path=ODD, model=ODD, pool=ODD, method=ODD)
async def test_names_of_any_characters_make_one_line_of_json(path: str, model: str, pool: str, method: str) -> None:
    out = Out()
    log = AccessLog(out, fleet())
    log.observe((record(path=path, model=model, pool=pool, method=method),))
    log.flush()
    assert out.getvalue().count(b"\n") == 1
    line = checked(out.lines[0])
    assert (line["path"], line["model"], line["pool"], line["method"]) == (path, model, pool, method)


async def test_lines_are_written_together() -> None:
    out = Out()
    log = AccessLog(out, fleet())
    for _ in range(50):
        log.observe((record(),))
    assert out.writes == 0
    log.flush()
    assert (out.writes, len(out.lines)) == (1, 50)
    log.flush()
    assert out.writes == 1


async def test_many_lines_do_not_wait_for_the_time() -> None:
    out = Out()
    log = AccessLog(out, fleet())
    log.observe((record(),))
    log.flush()
    each = len(out.getvalue())
    for _ in range(FLUSH_BYTES // each + 1):
        log.observe((record(),))
    assert out.writes == 2
    log.flush()
    assert len(out.lines) == FLUSH_BYTES // each + 2


async def test_a_few_lines_are_written_by_themselves_soon() -> None:
    out = Out()
    log = AccessLog(out, fleet())
    log.observe((record(),))
    log.observe((record(),))
    await eventually(lambda: out.writes == 1)
    assert len(out.lines) == 2
    log.observe((record(),))
    await eventually(lambda: out.writes == 2)


async def test_more_names_than_are_kept_are_all_right() -> None:
    out = Out()
    log = AccessLog(out, fleet())
    for n in range(1200):
        log.observe((record(path=f"/v1/{n}"),))
        log.observe((record(path=f"/v1/{n}", operation="other"),))
    log.flush()
    told = [(line["path"], line["operation"]) for line in out.lines]
    assert told == [(f"/v1/{n}", operation) for n in range(1200) for operation in ("chat", "other")]


@pytest.mark.parametrize(
    "name", ["m", 'say "m"', "back\\slash", "org/model:7b", "模型", "{}", "a b", "%s", "<b>", "n" * 100]
)
async def test_a_pool_of_any_name_is_served_measured_and_logged(name: str) -> None:
    answers = chat_stream()
    async with (
        ScriptedUpstream(lambda r: answers if r.asked_for_stream else json_answer(completion())) as u,
        running_gateway(config(u.url, pool=name)) as gw,
    ):
        for stream in (True, False):
            reply = await gw.post(r0(model=name, stream=stream))
            assert reply.status == 200
        for line in await gw.logs.access(2):
            assert (line["pool"], line["model"]) == (name, name)
            assert line["endpoint"]
        assert await gw.total("weir_requests_total", model=name, pool=name, outcome="ok") == 2


@pytest.mark.parametrize("path", ['/v1/a"b', "/v1/a%22b%5C", "/v1/%00%0A", "/v1/" + "x" * 5000, "/v1/%FF%C3"])
async def test_a_path_of_any_characters_makes_one_line_of_json(path: str) -> None:
    async with ScriptedUpstream(json_answer({})) as u, running_gateway(config(u.url, "http://127.0.0.1:9")) as gw:
        await gw.get(path.replace("/v1/", "/v1/unknown/") + "?model=nobody")
        (line,) = await gw.logs.access(1)
        checked(line)
        assert line["outcome"] == "client_error"
        assert len(line["path"]) <= 200
        assert len(gw.logs.access_out.getvalue().splitlines()) == 1


async def test_a_model_that_does_not_exist_is_not_logged() -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        await gw.post(r0(model="whatever-a-client-writes"))
        (line,) = await gw.logs.access(1)
        assert line["model"] == ""
        assert b"whatever" not in gw.logs.access_out.getvalue()


async def test_the_trace_id_is_the_clients() -> None:
    async with ScriptedUpstream(chat_stream()) as u, running_gateway(config(u.url)) as gw:
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        await gw.post(r0(), headers=[("traceparent", f"00-{trace}-00f067aa0ba902b7-01"), ("x-request-id", "mine")])
        await gw.raw(request_bytes("POST", "/v1/chat/completions", r0(), [("traceparent", 'bad"')]))
        first, second = await gw.logs.access(2)
        assert (first["trace_id"], first["request_id"]) == (trace, "mine")
        assert len(second["trace_id"]) == 32
        assert second["trace_id"] != trace
        assert (first["trace_sampled"], second["trace_sampled"]) == (False, False)  # nobody takes traces here


class Broken(io.BytesIO):
    """Standard output whose reader has gone."""

    def write(self, data: Any) -> int:
        raise BrokenPipeError


async def test_a_line_that_cannot_be_written_fails_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.access_log.FLUSH_BYTES", 1)
    async with ScriptedUpstream(chat_stream()) as u:
        server = await start(parse(config(u.url, listen="127.0.0.1:0"), source="test", environ={}), Broken())
        try:
            for _ in range(2):
                async with connect(server.port) as client:
                    await client.send(request_bytes("POST", "/v1/chat/completions", r0()))
                    assert (await client.reply()).done
            async with connect(server.port) as client:
                await client.send(request_bytes("GET", "/metrics"))
                assert b'outcome="ok"} 2\n' in (await client.reply(method="GET")).body
        finally:
            await server.stop()
