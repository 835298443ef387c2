"""RW-28 and RW-29, metrics: which chunk ends the wait for the first token, and that clients choose no label value."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import (
    ScriptedUpstream,
    Step,
    chat_stream,
    comment,
    completion,
    delta,
    done,
    end,
    fin,
    head,
    json_answer,
    pause,
    role,
    tok,
)

BEFORE_S = 0.25
PART_S = BEFORE_S / 4
TTFT = "weir_time_to_first_token_seconds"
NO_OUTPUT: list[Step] = [
    pause(PART_S),
    head(200, "sse"),
    comment(),
    pause(PART_S),
    role(),
    pause(PART_S),
    tok(""),
]
CALL = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}


@pytest.mark.parametrize(
    "first",
    [delta({"reasoning_content": "hm"}), delta({"reasoning": "hm"}), tok("a"), delta(CALL)],
    ids=["reasoning_content", "reasoning", "content", "tool call"],
)
async def test_rw_28_the_first_output_ends_the_wait_and_nothing_before_it(first: Step) -> None:
    script = [*NO_OUTPUT, pause(PART_S), first, pause(BEFORE_S), tok("b"), fin("stop"), done(), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        await gw.post(r0())
        metrics = await gw.outcome("ok")
        [line] = await gw.logs.access(1)
        assert metrics.total(f"{TTFT}_count") == metrics.total("weir_endpoint_time_to_first_token_seconds_count") == 1
        assert metrics.total(f"{TTFT}_sum") == pytest.approx(line["ttft_s"], abs=1e-5)
        assert BEFORE_S <= line["ttft_s"] <= line["duration_s"] - BEFORE_S


async def test_rw_28_an_answer_without_output_has_no_first_token() -> None:
    script = [*NO_OUTPUT, fin("stop"), done(), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        await gw.post(r0())
        metrics = await gw.outcome("ok")
        assert metrics.total(f"{TTFT}_count") == metrics.total("weir_endpoint_time_to_first_token_seconds_count") == 0
        assert (await gw.logs.access(1))[0]["ttft_s"] is None


async def test_rw_28_a_whole_answer_has_none_either() -> None:
    async with ScriptedUpstream(json_answer(completion())) as u, running_gateway(config(u.url)) as gw:
        await gw.post(r0(stream=False))
        metrics = await gw.outcome("ok")
        assert metrics.total(f"{TTFT}_count") == 0
        assert metrics.total("weir_request_duration_seconds_count") == 1


async def test_rw_29_what_clients_choose_makes_no_series() -> None:
    some = Random(29)

    def odd() -> bytes:
        name = f"{some.getrandbits(64):x}"
        match some.randrange(5):
            case 0:
                return request_bytes("POST", "/v1/chat/completions", r0(model=name, user=name))
            case 1:
                return request_bytes("POST", f"/v1/{name}", {"model": name})
            case 2:
                return request_bytes("GET", f"/{name}")
            case 3:
                return request_bytes("POST", "/v1/chat/completions", r0(), [("authorization", f"Bearer {name}")])
            case _:
                return request_bytes(name.upper(), "/v1/chat/completions", r0())

    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        for _ in range(2):
            await asyncio.gather(*(gw.raw(odd()) for _ in range(100)))
        before = await gw.metrics()
        for _ in range(18):
            await asyncio.gather(*(gw.raw(odd()) for _ in range(100)))
        after = await gw.metrics()
        assert len(after.samples) == len(before.samples)
        assert {labels.get("model", "m") for _, labels, _ in after.samples} <= {"m", "other"}
        assert after.total("weir_requests_total") > 1000
