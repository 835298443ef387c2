"""RW-32, traces-privacy: neither prompts nor keys are in anything the gateway says about a request."""

from __future__ import annotations

import json

import pytest

from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import r0, request_bytes, t0
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    done,
    end,
    eof,
    event,
    fin,
    hang,
    head,
    json_answer,
    raw,
    role,
    rst,
    tok,
    unused_port,
    wire,
)

PROMPT, ANSWER, CALLER_KEY, OWN_KEY, HEADER = (
    "CANARYPROMPT",
    "CANARYANSWER",
    "CANARYCALLER",
    "CANARYOWN",
    "CANARYHEADER",
)
CANARIES = (PROMPT, ANSWER, CALLER_KEY, OWN_KEY, HEADER)
MESSAGES = [{"role": "user", "content": PROMPT}]
CLIENT_HEADERS = [("Authorization", f"Bearer {CALLER_KEY}"), ("x-api-key", CALLER_KEY), ("Cookie", f"s={CALLER_KEY}")]
ECHO = {"error": {"message": f"bad prompt: {PROMPT}", "type": "BadRequestError", "code": 400}}

ENGINE_SAYS: dict[str, Script] = {
    "success": [head(200, "sse"), role(), tok(ANSWER), fin("stop"), done(), end()],
    "400": json_answer(ECHO, 400),
    "401": json_answer({"error": {"message": f"bad key {OWN_KEY}"}}, 401),
    "422": json_answer({"detail": [{"loc": ["body"], "msg": "bad", "input": PROMPT}]}, 422),
    "500": json_answer({"error": {"message": f"trace: {PROMPT} {ANSWER}"}}, 500),
    "timeout": [hang()],
    "broken stream": [head(200, "sse"), role(), tok(ANSWER), rst()],
    "error event": [head(200, "sse"), role(), tok(ANSWER), event(ECHO), done(), end()],
    "half a frame": [head(200, "sse"), role(), raw(f'data: {{"choices":[{{"delta":"{ANSWER}"'.encode()), end()],
    "garbage": [head(200, "sse"), raw(f"data: {ANSWER}\n\n".encode()), end()],
    "not HTTP": [wire(f"{ANSWER}\r\n\r\n".encode()), eof()],
}


def configured(url: str, level: str | None, **timeouts: str) -> str:
    options = {"timeouts": timeouts}
    endpoint = {"url": url, "api_key": OWN_KEY, "headers": {"x-private": HEADER}}
    if level is None:
        return config(endpoint, pool_options=options)
    return config(endpoint, pool_options=options, log={"level": level})


async def assert_no_canary(gateway: RunningGateway) -> None:
    metrics = await gateway.at_rest()
    await gateway.logs.access(int(metrics.total("weir_requests_total")))
    said = {"the logs": gateway.logs.text, "the metrics": metrics.text}
    for where, what in said.items():
        for canary in CANARIES:
            assert canary not in what, f"{canary} is in {where}:\n{what}"


@pytest.mark.parametrize("level", [None, "debug"])
@pytest.mark.parametrize("case", ENGINE_SAYS)
async def test_rw_32_no_prompt_answer_or_key_is_logged_whatever_the_engine_does(level: str | None, case: str) -> None:
    limits = {"first_token": "200ms", "total": "400ms"} if case == "timeout" else {}
    async with ScriptedUpstream(ENGINE_SAYS[case]) as u, running_gateway(configured(u.url, level, **limits)) as gw:
        for stream in (True, False):
            reply = await gw.post(r0(messages=MESSAGES, stream=stream), headers=CLIENT_HEADERS)
            headers = json.dumps(reply.headers)
            assert not any(canary in headers for canary in CANARIES)
            assert OWN_KEY not in reply.raw.decode(errors="replace")
            assert CALLER_KEY not in reply.raw.decode(errors="replace")
        await assert_no_canary(gw)


BAD_BODIES = {
    "broken JSON": b'{"model":"m","messages":[{"content":"CANARYPROMPT',
    "a string": b'"CANARYPROMPT"',
    "wrong types": json.dumps({"model": "m", "messages": PROMPT, "stream": PROMPT}).encode(),
    "not UTF-8": b'{"model":"m","messages":"CANARYPROMPT\xff"}',
}


@pytest.mark.parametrize("level", [None, "debug"])
@pytest.mark.parametrize("form", BAD_BODIES)
async def test_rw_32_no_prompt_is_logged_when_the_request_is_bad(level: str | None, form: str) -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(configured(u.url, level)) as gw:
        reply = await gw.post(BAD_BODIES[form], headers=CLIENT_HEADERS)
        assert reply.status == 400
        await assert_no_canary(gw)


@pytest.mark.parametrize("level", [None, "debug"])
async def test_rw_32_no_key_is_logged_at_start_or_when_an_engine_is_away(level: str | None) -> None:
    async with running_gateway(configured(f"http://127.0.0.1:{unused_port()}", level)) as gw:
        await gw.post(r0(messages=MESSAGES), headers=CLIENT_HEADERS)
        await gw.post(t0(prompt=PROMPT), "/v1/completions", CLIENT_HEADERS)
        await assert_no_canary(gw)


@pytest.mark.parametrize("level", [None, "debug"])
async def test_rw_32_no_query_or_path_of_a_client_is_kept(level: str | None) -> None:
    async with ScriptedUpstream(json_answer(completion(ANSWER))) as u, running_gateway(configured(u.url, level)) as gw:
        await gw.post(r0(messages=MESSAGES, stream=False), f"/v1/chat/completions?key={CALLER_KEY}")
        await gw.get(f"/{PROMPT}?key={CALLER_KEY}")
        await assert_no_canary(gw)


@pytest.mark.parametrize("level", [None, "debug"])
async def test_rw_32_no_prompt_is_logged_when_the_client_leaves(level: str | None) -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), role(), tok(ANSWER), hang()]) as u,
        running_gateway(configured(u.url, level)) as gw,
    ):
        async with gw.connect() as connection:
            await connection.send(request_bytes("POST", "/v1/chat/completions", r0(messages=MESSAGES), CLIENT_HEADERS))
            await connection.read_until(ANSWER.encode())
            connection.reset()
        await gw.settled(lambda m: m.total("weir_requests_total") == 1)
        await assert_no_canary(gw)
        assert len(u.requests) == 1


async def test_rw_32_each_request_leaves_one_access_line_that_tells_how_it_ended() -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        ok = await gw.post(r0())
        bad = await gw.post(b"{")
        await gw.settled(lambda m: m.total("weir_requests_total") == 2)
        written = await gw.logs.access(2)
        assert len(written) == 2
        lines = {line["request_id"]: line for line in written}
        assert lines[ok.header("x-request-id") or ""]["outcome"] == "ok"
        assert lines[bad.header("x-request-id") or ""]["outcome"] == "client_error"
