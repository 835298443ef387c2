"""An engine breaks a stream off, and another goes on: the client reads one stream, as if nothing had happened."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import pytest

from adapters.types import GatewayRequest
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import Reply, r0, request_bytes, t0
from tests.fakes.resuming import WITH_USAGE, broken_at_a, pool, usage_of
from tests.fakes.script import Script, Step, delta, event, fin, hang, head, json_answer, role, rst, tok, wire
from tests.fakes.scripted import Answer, Request, ScriptedUpstream, chat_stream, eof, eventually, gate
from tests.fakes.storyteller import PROMPT_TOKENS, storyteller

STORY = ["Once", " upon", " a", " time", ",", " there", ' was "a"', " dragon\n", "\\o/", "."]
FLAT = [token.strip("\n") for token in STORY]
UNICODE = ["na", "ï", "ve", " caf", "é", " 日本", "語", " 🎉", "\n\n", "!"]


def assert_one_stream(reply: Reply, story: Sequence[str], *, parts: int = 2) -> None:
    """Nothing in it tells that several engines spoke, but the last comment."""
    assert reply.status == 200
    assert reply.stream_error is None
    assert reply.content() == "".join(story)
    assert reply.finishes() == ["stop"]
    assert reply.payloads.count("[DONE]") == 1
    assert reply.payloads[-1] == "[DONE]"
    chunks = reply.chunks
    assert len({(each["id"], each["object"], each["created"], each["model"]) for each in chunks}) == 1
    roles = [choice["delta"]["role"] for choice in reply.choices() if "role" in choice.get("delta", {})]
    assert roles in ([], ["assistant"])
    comments = [comment for block in reply.blocks for comment in block.comments]
    assert f"attempts={parts} " in comments[-1]
    assert ("resumed=1" in comments[-1]) is (parts > 1)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize(("engine", "story"), [("llamacpp", STORY), ("llamacpp", UNICODE), ("vllm", FLAT)])
@pytest.mark.parametrize("limit", [None, 50])
async def test_a_stream_cut_after_any_chunk_reads_as_one(
    path: str, engine: str, story: list[str], limit: int | None
) -> None:
    make = r0 if path.startswith("/v1/chat") else t0
    body = make(stream_options=WITH_USAGE, temperature=0) | ({} if limit is None else {"max_tokens": limit})
    cuts = iter(range(1, len(story) + 1))

    def breaking(request: Request) -> Script:
        probe = request.target == "/tokenize"
        return storyteller(story, breaks_after=None if probe else next(cuts))(request)

    async with (
        ScriptedUpstream(breaking) as a,
        ScriptedUpstream(storyteller(story)) as b,
        running_gateway(pool(a.url, b.url, engine=engine)) as gw,
    ):
        for resumed in range(1, len(story) + 1):
            reply = await broken_at_a(gw, body, path)
            assert_one_stream(reply, story)
            assert usage_of(reply) == (PROMPT_TOKENS, len(story), PROMPT_TOKENS + len(story))
            metrics = await gw.metrics()
            assert metrics.total("weir_resumes_total", pool="m", result="resumed") == resumed
            assert metrics.total("weir_requests_total", outcome="ok") == metrics.total("weir_requests_total")


@pytest.mark.parametrize("cut", [3, 6])
async def test_the_limit_of_tokens_holds_for_the_whole(cut: int) -> None:
    body = r0(max_tokens=6, stream_options=WITH_USAGE)
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=cut)) as a,
        ScriptedUpstream(storyteller(STORY)) as b,
        running_gateway(pool(a.url, b.url)) as gw,
    ):
        reply = await broken_at_a(gw, body)
        assert reply.content() == "".join(STORY[:6])
        assert reply.finishes() == ["length"]
        assert usage_of(reply) == (PROMPT_TOKENS, 6, PROMPT_TOKENS + 6)


BROKEN: dict[str, list[Step]] = {
    "closed": [eof()],
    "reset": [rst()],
    "an error event": [event({"error": {"message": "the core died", "code": 500}})],
    "aborted": [fin("abort"), event(b"[DONE]")],
    "malformed": [event(b"{nonsense")],
    "half an event": [wire(b'e\r\ndata: {"choic\r\n'), eof()],
    "a whole event without its end": [
        wire(b'4d\r\ndata: {"id":"x","choices":[{"index":0,"delta":{"content":" lost"}}]}\n'),
        eof(),
    ],
}


@pytest.mark.parametrize("how", BROKEN)
async def test_it_goes_on_however_the_engine_broke_off(how: str) -> None:
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=4, breaks=BROKEN[how])) as a,
        ScriptedUpstream(storyteller(STORY)) as b,
        running_gateway(pool(a.url, b.url)) as gw,
    ):
        assert_one_stream(await broken_at_a(gw, r0()), STORY)


async def test_it_goes_on_after_a_stall() -> None:
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=4, breaks=[hang()])) as a,
        ScriptedUpstream(storyteller(STORY)) as b,
        running_gateway(pool(a.url, b.url, timeouts={"stall": "0.2s"})) as gw,
    ):
        assert_one_stream(await broken_at_a(gw, r0()), STORY)


@pytest.mark.parametrize(("each", "result"), [(4, "resumed"), (3, "budget")])
async def test_it_goes_on_as_often_as_retries_allow(each: int, result: str) -> None:
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=each)) as a,
        ScriptedUpstream(storyteller(STORY, breaks_after=each)) as b,
        ScriptedUpstream(storyteller(STORY, breaks_after=each)) as c,
        running_gateway(pool(a.url, b.url, c.url)) as gw,
    ):
        reply = await gw.post(r0())
        if result == "resumed":
            assert_one_stream(reply, STORY, parts=3)
        else:
            assert reply.content() == "".join(STORY[:9])
            assert reply.stream_error is not None
            assert "(not resumed: retries.attempts are used up)" in reply.stream_error["message"]
        assert await gw.total("weir_resumes_total", result=result) == 1


async def test_a_continuation_that_fails_before_its_output_is_tried_elsewhere() -> None:
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=3)) as a,
        ScriptedUpstream(in_the_way) as b,
        ScriptedUpstream(storyteller(STORY)) as c,
        running_gateway(pool(a.url, b.url, c.url)) as gw,
    ):
        for _ in range(6):
            reply = await gw.post(r0())
            assert reply.content() == "".join(STORY)
        assert await gw.total("weir_resumes_total", result="resumed") >= 1


def in_the_way(_: object) -> Script:
    return json_answer({"error": {"message": "no", "code": 503}}, 503)


async def test_trailing_white_space_that_a_template_takes_away_is_not_doubled() -> None:
    story = ["1.", " 1\n", "\n", "2.", " 3", "\n\n", "end"]
    for cut in range(1, len(story)):
        async with (
            ScriptedUpstream(storyteller(story, breaks_after=cut)) as a,
            ScriptedUpstream(regenerating(story)) as b,
            running_gateway(pool(a.url, b.url, engine="vllm")) as gw,
        ):
            assert_one_stream(await broken_at_a(gw, r0()), story)
            held = [r.json()["messages"][-1]["content"] for r in b.requests if "messages" in r.json()]
            assert all(each == each.rstrip() for each in held)


def regenerating(story: Sequence[str]) -> Answer:
    """A model that begins with the white space that its prompt lacks."""
    whole = "".join(story)

    def answer(request: Any) -> Script:
        last = request.json()["messages"][-1]
        held = last["content"] if last["role"] == "assistant" else ""
        assert whole.startswith(held)
        return chat_stream(whole[len(held) :])

    return answer


# --- where it is not exact


async def not_resumed(gw: RunningGateway, body: dict[str, Any], why: str, result: str) -> None:
    reply = await broken_at_a(gw, body)
    assert reply.stream_error is not None
    assert f"(not resumed: {why}" in reply.stream_error["message"]
    assert not reply.done
    assert await gw.total("weir_resumes_total", result=result) == 1
    assert await gw.total("weir_resumes_total") == 1


@pytest.mark.parametrize(
    ("options", "weights", "why", "result"),
    [
        ({"resume": False}, ("w", "w"), "resume is off for this pool", "off"),
        ({}, ("w", "v"), "no other endpoint of the pool is declared", "no_endpoint"),
        ({}, ("w", None), "no other endpoint of the pool is declared", "no_endpoint"),
        ({}, (None, None), "no other endpoint of the pool is declared", "no_endpoint"),
        ({"retries": {"attempts": 1}}, ("w", "w"), "retries.attempts are used up", "budget"),
    ],
)
async def test_the_configuration_may_forbid_it(
    options: dict[str, Any], weights: tuple[str | None, ...], why: str, result: str
) -> None:
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=3)) as a,
        ScriptedUpstream(storyteller(STORY)) as b,
        running_gateway(pool(a.url, b.url, weights=weights, **options)) as gw,
    ):
        await not_resumed(gw, r0(), why, result)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"seed": 1}, "a seed asks"),
        ({"frequency_penalty": 0.5}, "the request's frequency_penalty"),
        ({"response_format": {"type": "json_object"}}, "the request's response_format"),
        ({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "O"}]}, "the conversation"),
    ],
)
async def test_a_request_may_forbid_it(changes: dict[str, Any], why: str) -> None:
    script = [head(200, "sse"), role(), tok("a"), eof()]
    async with (
        ScriptedUpstream(script) as a,
        ScriptedUpstream(storyteller(STORY)) as b,
        running_gateway(pool(a.url, b.url)) as gw,
    ):
        reply = await gw.post(r0(**changes))
        while reply.header("x-weir-endpoint") != "a":
            reply = await gw.post(r0(**changes))
        assert reply.stream_error is not None
        assert f"(not resumed: {why}" in reply.stream_error["message"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"reasoning_content": "hm"}, "reasoning had begun"),
        (
            {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]},
            "a tool call had begun",
        ),
    ],
)
async def test_what_was_said_may_forbid_it(said: dict[str, Any], why: str) -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), role(), delta(said), eof()]) as a,
        ScriptedUpstream(storyteller(STORY)) as b,
        running_gateway(pool(a.url, b.url)) as gw,
    ):
        await not_resumed(gw, r0(), why, "inexact")


async def test_an_answer_that_only_lacks_its_end_marker_is_not_begun_again() -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), role(), tok("a"), fin("stop"), eof()]) as a,
        ScriptedUpstream(storyteller(STORY)) as b,
        running_gateway(pool(a.url, b.url)) as gw,
    ):
        await not_resumed(gw, r0(), "the answer had its finish reason already", "inexact")


async def test_an_engine_that_refuses_to_go_on_is_not_blamed() -> None:
    refusal = json_answer({"error": {"message": "no such flag", "code": 400}}, 400)

    def answer(request: Any) -> Script:
        return refusal if request.json()["messages"][-1]["role"] == "assistant" else chat_stream()

    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=3)) as a,
        ScriptedUpstream(answer) as b,
        running_gateway(pool(a.url, b.url, retries={"attempts": 2})) as gw,
    ):
        await not_resumed(gw, r0(), "the attempt to go on failed: no such flag", "failed")
        metrics = await gw.metrics()
        assert metrics.total("weir_endpoint_healthy", endpoint="b") == 1


async def test_other_white_space_than_was_given_ends_it() -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), role(), tok("a"), tok("\n\n"), eof()]) as a,
        ScriptedUpstream(chat_stream(" b")) as b,
        running_gateway(pool(a.url, b.url, engine="vllm")) as gw,
    ):
        reply = await broken_at_a(gw, r0())
        assert reply.content() == "a\n\n"
        assert reply.stream_error is not None
        assert "other white space" in reply.stream_error["message"]


# --- the rest of the request's life


async def test_a_client_that_leaves_while_it_goes_on_ends_it_at_the_engine() -> None:
    never = asyncio.Event()
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=3)) as a,
        ScriptedUpstream([head(200, "sse"), role(), tok(" time"), gate(never)]) as b,
        running_gateway(pool(a.url, b.url)) as gw,
    ):
        for _ in range(2):
            async with gw.connect() as connection:
                await connection.send(request_bytes("POST", "/v1/chat/completions", r0()))
                await b.arrived()
        assert b.requests
        await eventually(lambda: all(request.left.is_set() for request in b.requests))
        await gw.at_rest()


async def test_while_it_goes_on_no_further_copy_of_its_prompt_is_kept() -> None:
    never = asyncio.Event()
    ask = r0(messages=[{"role": "user", "content": "of no other test"}])
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=3)) as a,
        ScriptedUpstream([head(200, "sse"), role(), tok(" going on"), gate(never)]) as b,
        running_gateway(pool(a.url, b.url)) as gw,
    ):
        for _ in range(2):
            async with gw.connect() as client:
                await client.send(request_bytes("POST", "/v1/chat/completions", ask))
                if b"x-weir-endpoint: a" in await client.read_until(b" going on"):
                    requests = [each for each in gc.get_objects() if isinstance(each, GatewayRequest)]
                    held = [each for each in requests if b"of no other test" in each.raw]
                    assert [each for each in held if each.body or STORY[0].encode() in each.raw] == []
                    return
        raise AssertionError("a was never asked")


async def test_the_record_tells_of_both_attempts_and_its_phases_sum_up() -> None:
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=4)) as a,
        ScriptedUpstream(storyteller(STORY)) as b,
        running_gateway(pool(a.url, b.url)) as gw,
    ):
        reply = await broken_at_a(gw, r0(stream_options=WITH_USAGE))
        told = (await gw.get(f"/weir/requests/{reply.header('x-request-id')}")).json()
        assert [(each["endpoint"], each["outcome"], each["resumes"]) for each in told["attempts"]] == [
            ("a", "upstream_error", False),
            ("b", "ok", True),
        ]
        assert [each["chunks"] for each in told["attempts"]] == [4, 6]
        assert told["outcome"] == "ok"
        assert told["output_tokens"] == len(STORY)
        assert told["input_tokens"] == PROMPT_TOKENS
        assert sum(part["duration_s"] for part in told["phases"]) == pytest.approx(told["duration_s"])
        assert all(part["duration_s"] >= 0 for part in told["phases"])
        assert (told["resume"], told["not_resumed"]) == ("resumed", None)
        assert "resume" in {part["name"] for part in told["phases"]}
        assert "resumed at b after it had broken off (a: truncated_stream)" in told["verdict"]


async def test_the_record_tells_why_a_second_break_was_not_gone_on_with() -> None:
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=3)) as a,
        ScriptedUpstream(storyteller(STORY, breaks_after=3)) as b,
        running_gateway(pool(a.url, b.url)) as gw,
    ):
        reply = await gw.post(r0())
        assert reply.content() == "".join(STORY[:6])
        told = (await gw.get(f"/weir/requests/{reply.header('x-request-id')}")).json()
        assert [each["resumes"] for each in told["attempts"]] == [False, True]
        assert told["resume"] == "no_endpoint"
        assert told["not_resumed"] == "no other endpoint with the same weights takes traffic"
        assert f"not resumed ({told['not_resumed']})" in told["verdict"]


async def test_the_record_of_a_refusal_to_go_on_has_none_of_the_engines_words() -> None:
    refusal = json_answer({"error": {"message": "the secret prompt", "code": 400}}, 400)

    def answer(request: Any) -> Script:
        return refusal if request.json()["messages"][-1]["role"] == "assistant" else chat_stream()

    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=3)) as a,
        ScriptedUpstream(answer) as b,
        running_gateway(pool(a.url, b.url)) as gw,
    ):
        reply = await broken_at_a(gw, r0())
        record = await gw.get(f"/weir/requests/{reply.header('x-request-id')}")
        assert record.json()["resume"] == "failed"
        assert "asked in vain: b: client_error; no other endpoint" in record.json()["verdict"]
        assert b"secret" not in record.body


async def test_the_same_model_of_the_same_engine_is_taken_for_equal() -> None:
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=4)) as a,
        ScriptedUpstream(storyteller(STORY)) as b,
        running_gateway(
            config(
                {"id": "a", "url": a.url, "engine": "llamacpp", "model": "story.gguf"},
                {"id": "b", "url": b.url, "engine": "llamacpp", "model": "story.gguf"},
            )
        ) as gw,
    ):
        assert_one_stream(await broken_at_a(gw, r0()), STORY)
