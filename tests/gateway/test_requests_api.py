"""``/weir/requests`` and ``weir explain --url``: real requests through a real gateway, and what is told of them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.recorder.store import FlightStore
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.program import ended
from tests.fakes.raw_client import r0
from tests.fakes.script import rst
from tests.fakes.scripted import ScriptedUpstream, chat_stream, eventually

TRACEPARENT = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


async def told(gateway: RunningGateway, path: str) -> Any:
    reply = await gateway.get(f"/weir/requests{path}")
    assert reply.status == 200, reply.body
    return reply.json()


async def test_a_request_is_told_by_its_id_as_soon_as_it_ended() -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        await gw.post(r0(), headers=[("x-request-id", "mine/1")])
        found = await told(gw, "/mine%2F1")
        assert found["request_id"] == "mine/1"
        assert (found["pool"], found["model"], found["endpoint"], found["outcome"]) == ("m", "m", "m-0", "ok")
        assert found["duration_s"] == pytest.approx(sum(phase["duration_s"] for phase in found["phases"]))
        assert found["verdict"].startswith("answered in ")
        assert found["attempts"][0]["engine"] == "vllm"
        assert [one["request_id"] for one in await told(gw, "?slowest=3&since=1h&pool=m")] == ["mine/1"]
        assert await told(gw, "?pool=other") == []


async def test_what_failed_is_told_with_each_attempt() -> None:
    async with (
        ScriptedUpstream([rst()]) as bad,
        ScriptedUpstream(chat_stream("ab")) as good,
        running_gateway(config(bad.url, good.url)) as gw,
    ):
        replies = [await gw.post(r0()) for _ in range(2)]  # one of them begins at the bad one
        [tried_twice] = [reply for reply in replies if reply.header("x-weir-attempts") == "2"]
        found = await told(gw, f"/{tried_twice.header('x-request-id')}")
        assert [(one["endpoint"], one["error_type"]) for one in found["attempts"]] == [("m-0", "reset"), ("m-1", None)]
        assert "retries" in {phase["name"] for phase in found["phases"]}


async def test_the_requests_of_a_trace_are_a_list() -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        for name in ("one", "two"):
            await gw.post(r0(), headers=[("x-request-id", name), TRACEPARENT])
        found = await told(gw, "/0af7651916cd43dd8448eb211c80319c")
        assert [one["request_id"] for one in found] == ["one", "two"]


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/weir/requests/nobody", 404, "no request 'nobody' is recorded"),
        ("/weir/requests?slowest=x", 400, "slowest takes a number, 1 to 1000"),
        ("/weir/requests?slowest=0", 400, "slowest takes a number, 1 to 1000"),
        ("/weir/requests?since=soon", 400, "since takes a duration such as 15m: it "),
    ],
)
async def test_questions_that_have_no_answer_are_told(path: str, status: int, words: str) -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        reply = await gw.get(path)
        assert reply.status == status
        message = reply.json()["error"]["message"]
        assert words in message
        assert "invalid literal" not in message


async def test_only_operators_are_told() -> None:
    async with running_gateway(config("http://127.0.0.1:9", admin={"token": "secret"})) as gw:
        for path in ("/weir/requests", "/weir/requests/r1"):
            assert (await gw.get(path)).status == 401
            assert (await gw.get(path, [("authorization", "Bearer secret")])).status in (200, 404)


async def explain(*arguments: str) -> tuple[int | None, str]:
    """Runs the command; returns its status, and what it printed to whichever output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "explain", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await ended(process)
    return process.returncode, out.decode()


async def test_the_command_asks_a_gateway_that_runs() -> None:
    async with (
        ScriptedUpstream(chat_stream("ab")) as u,
        running_gateway(config(u.url, admin={"token": "secret"})) as gw,
    ):
        await gw.post(r0(), headers=[("x-request-id", "mine/1"), TRACEPARENT])
        asked = ("--url", gw.url, "--token", "secret")
        for named in (["mine/1"], ["0af7651916cd43dd8448eb211c80319c"], ["--slowest", "1"]):
            status, out = await explain(*named, "--json", *asked)
            assert status == 0, out
            found = json.loads(out)
            assert (found[0] if isinstance(found, list) else found)["request_id"] == "mine/1"
        assert (await explain("nobody", *asked))[0] == 1
        status, out = await explain("mine/1", "--url", gw.url)
        assert status == 1
        assert "give it with --token" in out
    status, out = await explain("mine/1", "--url", "http://127.0.0.1:9")
    assert status == 1
    assert "no Weir answers at http://127.0.0.1:9" in out


async def test_the_file_holds_what_was_served_and_no_content(tmp_path: Path) -> None:
    path = tmp_path / "state" / "flights"
    secret = "a secret question"
    async with (
        ScriptedUpstream(chat_stream("a secret answer")) as u,
        running_gateway(config(u.url, recorder={"path": str(path)})) as gw,
    ):
        await gw.post(r0(messages=[{"role": "user", "content": secret}]), headers=[("x-request-id", "r1")])
        await eventually(lambda: b"r1" in b"".join(file.read_bytes() for file in path.parent.iterdir()))
    store = FlightStore.reading(path)
    [record] = store.named("r1")
    store.close()
    assert record.outcome == "ok"
    assert b"secret" not in path.read_bytes()


async def test_a_file_that_cannot_be_written_costs_no_request(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"something else" * 100)
    text = config("http://127.0.0.1:9", recorder={"path": str(tmp_path / "f")})
    async with (
        ScriptedUpstream(chat_stream("ab")) as u,
        running_gateway(text.replace("http://127.0.0.1:9", u.url)) as gw,
    ):
        assert (await gw.post(r0(), headers=[("x-request-id", "r1")])).content() == "ab"
        assert (await told(gw, "/r1"))["outcome"] == "ok"
        assert "recorder.path" in gw.logs.text


async def test_a_server_that_is_no_weir_is_told_as_such() -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u:
        for named in (["mine/1"], ["--slowest", "1"]):
            status, out = await explain(*named, "--url", u.url)
            assert status == 1
            assert f"what answers at {u.url} is no Weir, or not where its /weir/* is (status 404)" in out
