"""RW-13, json-edge: JSON that strict parsers refuse loses no answer and makes no 500."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.fakes.engines import WHOLE_ANSWER_ENGINES, spread
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0
from tests.fakes.scripted import (
    ScriptedUpstream,
    Step,
    chat_stream,
    chunk,
    completion,
    delta,
    done,
    end,
    event,
    fin,
    head,
    json_answer,
    raw,
    role,
    to_json,
    tok,
    usage_object,
)

LITERALS = {"minus infinity": -math.inf, "infinity": math.inf, "not a number": math.nan}


def logprobs(value: float) -> dict[str, Any]:
    return {"content": [{"token": "a", "logprob": value, "bytes": [97], "top_logprobs": [{"logprob": value}]}]}


def assert_kept_or_finite(found: dict[str, Any]) -> None:
    """Everything but the strange number is as the engine said; the number is itself, null or a finite floor."""
    [entry] = found["content"]
    assert (entry["token"], entry["bytes"]) == ("a", [97])
    assert entry["logprob"] is None or isinstance(entry["logprob"], (int, float))


@pytest.mark.parametrize(("literal", "engine"), spread(LITERALS, WHOLE_ANSWER_ENGINES))
async def test_rw_13_a_whole_answer_with_literals_json_lacks_is_not_lost(engine: str, literal: str) -> None:
    answer = completion("a")
    answer["choices"][0]["logprobs"] = logprobs(LITERALS[literal])
    async with ScriptedUpstream(json_answer(answer)) as u, running_gateway(config(u.url, engine=engine)) as gw:
        reply = await gw.post(r0(stream=False, logprobs=True))
        assert reply.status == 200
        found = reply.json()
        assert_kept_or_finite(found["choices"][0].pop("logprobs"))
        del answer["choices"][0]["logprobs"]
        assert found == answer | {"model": "m"}
        metrics = await gw.outcome("ok")
        assert metrics.total("weir_tokens_total", type="output") == 2


@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize(("place", "engine"), spread(["first output", "later", "finish", "role"]))
async def test_rw_13_a_streamed_chunk_with_literals_json_lacks_stops_nothing(
    engine: str, literal: str, place: str
) -> None:
    def strange_if(here: str) -> Any:
        return logprobs(LITERALS[literal]) if here == place else None

    script: list[Step] = [
        head(200, "sse"),
        delta({"role": "assistant", "content": ""}, logprobs=strange_if("role")),
        tok("a", logprobs=strange_if("first output")),
        tok("b", logprobs=strange_if("later")),
        delta({}, finish="stop", logprobs=strange_if("finish")),
        done(),
        end(),
    ]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, engine=engine)) as gw:
        reply = await gw.post(r0(logprobs=True))
        assert reply.content() == "ab"
        assert reply.finishes() == ["stop"]
        assert reply.done
        for choice in reply.choices():
            if choice.get("logprobs"):
                assert_kept_or_finite(choice["logprobs"])
        await gw.outcome("ok")


async def test_rw_13_a_usage_chunk_with_literals_json_lacks_is_still_counted() -> None:
    counts = event(chunk([], usage=usage_object(5, 2), metrics={"mean_itl_ms": math.nan}))
    script = [head(200, "sse"), role(), tok("a"), fin("stop"), counts, done(), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream_options={"include_usage": True}))
        assert reply.chunks[-1]["usage"]["completion_tokens"] == 2
        assert reply.done
        metrics = await gw.outcome("ok")
        assert metrics.total("weir_tokens_total", type="input") == 5


HALVES = (
    rb'{"id":"c","object":"chat.completion.chunk","created":1,"model":"x",'
    rb'"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}'
)
ODD_ANSWERS = {
    "half a surrogate pair": (rb"a\ud83d", "a\ud83d"),
    "an escaped pair": (rb"\ud83d\ude00", "😀"),
    "an escaped zero": (rb"a\u0000b", "a\x00b"),
    "escaped slashes": (rb"a\/b\\c\"d", 'a/b\\c"d'),
    "escaped line ends": (rb"a\n\r\u2028b", "a\n\r\u2028b"),
}


@pytest.mark.parametrize("form", ODD_ANSWERS)
async def test_rw_13_odd_escapes_in_a_stream_pass(form: str) -> None:
    spelled, meant = ODD_ANSWERS[form]
    script = [head(200, "sse"), role(), event(HALVES % spelled), tok("b"), fin("stop"), done(), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.content() == meant + "b"
        assert reply.done


@pytest.mark.parametrize("form", ODD_ANSWERS)
async def test_rw_13_odd_escapes_in_a_whole_answer_pass(form: str) -> None:
    spelled, meant = ODD_ANSWERS[form]
    body = to_json(completion("PLACE")).replace(b"PLACE", spelled)
    async with ScriptedUpstream(json_answer(body)) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream=False))
        assert reply.status == 200
        assert reply.json()["choices"][0]["message"]["content"] == meant


async def test_rw_13_numbers_keep_their_value_on_the_way_back() -> None:
    odd = b'{"big":123456789012345678901234567890,"tiny":1e-320,"exact":0.1,"one":1.0,"minus":-0.0}'
    body = to_json(completion("a")).replace(b'"usage"', b'"odd":' + odd + b',"usage"')
    async with ScriptedUpstream(json_answer(body)) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.post(r0(stream=False))).json()["odd"] == json.loads(odd)


async def test_rw_13_white_space_and_key_order_change_nothing() -> None:
    reordered = json.dumps(
        {"choices": [{"delta": {"content": "a"}, "finish_reason": None, "index": 0}], "model": "x", "id": "c"},
        indent=None,
    )
    script = [head(200, "sse"), role(), event(reordered.encode()), fin("stop"), done(), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.content() == "a"
        assert {piece["model"] for piece in reply.chunks} == {"m"}
        pretty = json.dumps(completion("a"), indent=2).encode()
    async with ScriptedUpstream(json_answer(pretty)) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.post(r0(stream=False))).json() == completion("a") | {"model": "m"}


def with_content(spelled: bytes) -> bytes:
    return b'{"model":"m","stream":true,"messages":[{"role":"user","content":"' + spelled + b'"}]}'


ODD_REQUESTS = {
    "NaN": with_content(b"hi").replace(b"true", b'true,"temperature":NaN'),
    "Infinity": with_content(b"hi").replace(b"true", b'true,"temperature":-Infinity'),
    "half a surrogate pair": with_content(rb"\ud83d"),
    "an escaped zero": with_content(rb"\u0000"),
    "a big number": with_content(b"hi").replace(b"true", b'true,"seed":123456789012345678901234567890'),
    "a number too large for a double": with_content(b"hi").replace(b"true", b'true,"seed":1e999'),
    "white space around": b" \r\n\t" + with_content(b"hi") + b"\n\n",
    "a byte order mark": b"\xef\xbb\xbf" + with_content(b"hi"),
    "bytes that are not UTF-8": with_content(b"\xff\xfe"),
    "a raw line end in a string": with_content(b"a\nb"),
    "a key twice": with_content(b"hi").replace(b"true", b'true,"user":"a","user":"b"'),
    "deep nesting": with_content(b"hi").replace(b"true", b'true,"zzz":' + b"[" * 5_000 + b"]" * 5_000),
    "something after the end": with_content(b"hi") + b"{}",
}


@pytest.mark.parametrize("form", ODD_REQUESTS)
async def test_rw_13_an_odd_request_is_passed_as_it_is_or_refused_with_a_reason(form: str) -> None:
    body = ODD_REQUESTS[form]
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(body)
        if reply.status == 200:
            assert reply.content() == "ab"
            assert reply.done
            kept = json.loads(u.last.body.decode("utf-8-sig"))
            meant = json.loads(body.decode("utf-8-sig"))
            for key in meant.keys() - {"temperature", "zzz"}:
                assert kept[key] == meant[key]
        else:
            assert reply.status == 400
            assert reply.header("content-type") == "application/json"
            assert reply.error["message"]
            assert not u.requests
        assert (await gw.post(r0())).content() == "ab"


async def test_rw_13_the_engines_answer_that_is_not_utf_8_makes_no_500() -> None:
    script = [head(200, "sse"), role(), raw(HALVES.replace(b"%b", b"\xff").join([b"data: ", b"\n\n"])), fin("stop")]
    async with ScriptedUpstream([*script, done(), end()]) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.status in (200, 502)
        await gw.at_rest()
        metrics = await gw.metrics()
        assert metrics.total("weir_requests_total", outcome="internal_error") == 0
