"""RW-01 and RW-02, framing: an event stream is bytes; neither packets nor spellings change what is read."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.fakes.engines import ENGINES
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import Reply, r0, request_bytes, t0
from tests.fakes.scripted import (
    Body,
    Script,
    ScriptedUpstream,
    Step,
    chat_stream,
    chunk,
    comment,
    completion,
    cut,
    done,
    end,
    fin,
    gate,
    head,
    joined,
    pause,
    raw,
    role,
    text_stream,
    to_json,
    tok,
    usage,
)

TEXT = "北京😀é"
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


def token(content: str) -> dict[str, Any]:
    return chunk([{"index": 0, "delta": {"content": content}, "finish_reason": None}])


def assert_clean_stream(reply: Reply, content: str) -> None:
    """The answer is whole and right, and holds nothing that trips the official client."""
    assert reply.status == 200
    assert (reply.header("content-type") or "").startswith("text/event-stream")
    assert reply.whole
    assert reply.content() == content
    assert reply.finishes() == ["stop"]
    assert reply.payloads[-1] == "[DONE]"
    assert b"\xef\xbf\xbd" not in reply.raw
    for block in reply.blocks:
        assert not block.fields or block.data is not None, f"a block without data crashes the SDK: {block}"
        assert {name for name, _ in block.fields} <= {"data"}, f"the engine's own fields were forwarded: {block}"
    assert not reply.body.rpartition(b"\n\n")[2].strip(), "the last event is not closed by a blank line"


async def sdk_text(gateway: RunningGateway) -> str:
    stream = await gateway.sdk().chat.completions.create(model="m", messages=HI, stream=True)
    return "".join([piece.choices[0].delta.content or "" async for piece in stream if piece.choices])


@pytest.mark.parametrize("engine", ENGINES)
async def test_rw_01_characters_cut_by_packet_borders_arrive_whole(engine: str) -> None:
    body = joined([role(), tok(TEXT), fin("stop"), usage(5, 2), done()])
    first, last = body.index("北".encode()), body.index("é".encode()) + len("é".encode())
    cuts = [list(range(first, last + 1))]
    for seed in range(20):
        chance = random.Random(seed)
        cuts.append([*chance.choices(range(len(body)), k=12), chance.randrange(first, last)])
    scripts = [[head(200, "sse"), *cut(body, edges), end()] for edges in cuts]
    async with (
        ScriptedUpstream(*scripts) as u,
        running_gateway(config(u.url, engine=engine)) as gw,
    ):
        for _ in scripts:
            assert_clean_stream(await gw.post(r0()), TEXT)
        assert await sdk_text(gw) == TEXT


async def test_rw_01_a_whole_stream_written_byte_by_byte_arrives_whole() -> None:
    body = joined([role(), tok(TEXT), fin("stop"), done()])
    async with (
        ScriptedUpstream([head(200, "sse"), *cut(body, range(len(body))), end()]) as u,
        running_gateway(config(u.url)) as gw,
    ):
        assert_clean_stream(await gw.post(r0()), TEXT)


@pytest.mark.parametrize(
    "content",
    ["\u2028x\u2029", "\u0085", "\ufeffx", "a\x0bb\x0cc", "\x1c\x1d\x1e", "e\u0301", "\U0001f468\u200d\U0001f469"],
)
async def test_rw_01_characters_that_look_like_line_ends_are_text(content: str) -> None:
    async with ScriptedUpstream(chat_stream(content)) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.content() == content
        assert reply.done
        assert await sdk_text(gw) == content


@pytest.mark.parametrize("engine", ENGINES)
async def test_rw_01_a_completions_stream_cut_within_characters_arrives_whole(engine: str) -> None:
    steps = text_stream(TEXT)
    body = joined(steps)
    edges = [body.index("😀".encode()) + 2, body.index("é".encode()) + 1]
    async with (
        ScriptedUpstream([head(200, "sse"), *cut(body, edges), end()]) as u,
        running_gateway(config(u.url, engine=engine)) as gw,
    ):
        reply = await gw.post(t0(), "/v1/completions")
        assert reply.content() == TEXT
        assert reply.done


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "length"])
async def test_rw_01_a_whole_answer_cut_within_characters_arrives_whole(chunked: bool) -> None:
    body = to_json(completion(TEXT))
    start = body.index("北".encode())
    script: list[Step] = [
        head(200, "json", length=None if chunked else len(body)),
        *cut(body, range(start, start + 12)),
        end(),
    ]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream=False))
        assert reply.status == 200
        assert reply.json()["choices"][0]["message"]["content"] == TEXT


def split_line_ends(steps: list[Body]) -> list[Step]:
    """CRLF, with CR and LF in writes of their own."""
    spelled: list[Step] = []
    for step in steps:
        lines = step.data.split(b"\n")
        for line in lines[:-1]:
            spelled += [raw(line), raw(b"\r"), raw(b"\n")] if line else [raw(b"\r"), raw(b"\n")]
    return spelled


def respelled(steps: list[Body], old: bytes, new: bytes) -> list[Step]:
    return [raw(step.data.replace(old, new)) for step in steps]


def two_data_lines(steps: list[Body]) -> list[Step]:
    """Each JSON object over two ``data:`` lines, broken where JSON allows white space."""
    return [raw(step.data.replace(b',"choices"', b',\ndata: "choices"')) for step in steps]


def with_comments(steps: list[Body]) -> list[Step]:
    spelled: list[Step] = [comment()]
    for step in steps:
        spelled += [step, comment(), raw(b":\n"), raw(b":\n\n"), comment("data: {}")]
    return spelled


def with_fields(steps: list[Body]) -> list[Step]:
    named: list[Step] = [raw(b"id: 7\nevent: message\nretry: 3000\n" + step.data) for step in steps]
    return [raw(b"retry: 3000\n\n"), raw(b"id: 6\n\n"), *named[:2], comment(), raw(b"event: message\n\n"), *named[2:]]


EVENTS = [role(), tok("a"), tok("b"), tok("c"), fin("stop"), done()]
SPELLINGS: dict[str, list[Step]] = {
    "plain": list(EVENTS),
    "CRLF, each end split": split_line_ends(EVENTS),
    "CRLF": respelled(EVENTS, b"\n", b"\r\n"),
    "CR": respelled(EVENTS, b"\n", b"\r"),
    "no space": respelled(EVENTS, b"data: ", b"data:"),
    "two spaces": respelled(EVENTS, b"data: ", b"data:  "),
    "two data lines": two_data_lines(EVENTS),
    "two data lines, CRLF": [
        raw(s.data.replace(b"\n", b"\r\n")) for s in two_data_lines(EVENTS) if isinstance(s, Body)
    ],
    "comments": with_comments(EVENTS),
    "comments, CRLF": [raw(s.data.replace(b"\n", b"\r\n")) for s in with_comments(EVENTS) if isinstance(s, Body)],
    "id, event and retry": with_fields(EVENTS),
    "a comment within a block": respelled(EVENTS, b"data: ", b": ping\ndata: "),
    "a comment after the data": [raw(s.data.replace(b"\n\n", b"\n: ping\n\n")) for s in EVENTS],
    "more blank lines": respelled(EVENTS, b"\n\n", b"\n\n\n\n"),
    "a byte order mark": [raw(b"\xef\xbb\xbf"), *EVENTS],
    "an unknown field": respelled(EVENTS, b"data: ", b"x-note: 1\ndata: "),
    "all in one write": [raw(joined(EVENTS))],
}


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_rw_02_every_legal_spelling_gives_the_same_deltas(spelling: str) -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), *SPELLINGS[spelling], end()]) as u,
        running_gateway(config(u.url)) as gw,
    ):
        reply = await gw.post(r0())
        assert_clean_stream(reply, "abc")
        assert [c["delta"].get("content") for c in reply.choices() if c["delta"].get("content")] == ["a", "b", "c"]
        assert await sdk_text(gw) == "abc"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("spelling", ["CRLF, each end split", "CR", "no space", "comments", "id, event and retry"])
async def test_rw_02_every_engine_may_spell_as_it_likes(engine: str, spelling: str) -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), *SPELLINGS[spelling], end()]) as u,
        running_gateway(config(u.url, engine=engine)) as gw,
    ):
        assert_clean_stream(await gw.post(r0()), "abc")


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_rw_02_spellings_cut_anywhere_give_the_same_text(spelling: str) -> None:
    body = joined(SPELLINGS[spelling])

    def cut_somewhere() -> Script:
        return [head(200, "sse"), *cut(body, random.Random(len(body)).choices(range(len(body)), k=20)), end()]

    async with ScriptedUpstream(cut_somewhere()) as u, running_gateway(config(u.url)) as gw:
        assert_clean_stream(await gw.post(r0()), "abc")


@pytest.mark.parametrize("spelling", ["CRLF, each end split", "CR", "no space", "two data lines", "comments"])
async def test_rw_02_a_last_event_without_its_blank_line_still_counts(spelling: str) -> None:
    steps = SPELLINGS[spelling]
    body = joined(steps).rstrip(b"\r\n: ") if spelling != "comments" else joined(steps[:-4]).rstrip(b"\n")
    async with ScriptedUpstream([head(200, "sse"), raw(body), end()]) as u, running_gateway(config(u.url)) as gw:
        assert_clean_stream(await gw.post(r0()), "abc")


async def test_rw_02_the_gateways_own_heartbeat_is_a_comment_and_keeps_a_slow_stream_awake() -> None:
    go_on = asyncio.Event()
    script = [head(200, "sse"), gate(go_on), *EVENTS, end()]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url, stream={"keepalive": "100ms"})) as gw,
        gw.connect() as connection,
    ):
        await connection.send(request_bytes("POST", "/v1/chat/completions", r0()))
        await connection.read_until(lambda got: got.count(b"\n:") + got.count(b"\r\n:") >= 2)
        go_on.set()
        reply = await connection.reply()
        assert_clean_stream(reply, "abc")
        assert sum(bool(block.comments) and not block.fields for block in reply.blocks) >= 2


async def test_rw_02_the_official_client_reads_a_stream_with_heartbeats_and_ids() -> None:
    named = [raw(b"id: 7\n" + step.data) for step in EVENTS]
    script = [head(200, "sse"), *named[:2], pause(0.35), *named[2:], end()]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url, stream={"keepalive": "100ms"})) as gw,
    ):
        assert await sdk_text(gw) == "abc"


@pytest.mark.parametrize("engine", ENGINES)
async def test_rw_02_the_timings_are_a_comment_right_before_the_end(engine: str) -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url, engine=engine)) as gw:
        reply = await gw.post(r0())
        assert_clean_stream(reply, "ab")
        after_finish = reply.body.partition(b'"finish_reason":"stop"')[2]
        before_done = after_finish.partition(b"data: [DONE]")[0]
        assert any(line.startswith(b":") and b"ttft" in line for line in before_done.split(b"\n")), reply.body
