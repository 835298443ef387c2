"""curl against real engines behind Weir, as the README shows it."""

from __future__ import annotations

import asyncio
import json
import shutil

import pytest

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is missing"),
]


async def curl(url: str, body: dict[str, object], *options: str) -> str:
    """Returns what curl printed."""
    process = await asyncio.create_subprocess_exec(
        *("curl", "--silent", "--show-error", "--no-buffer", "--max-time", "50", *options, url),
        *("-H", "content-type: application/json", "-d", json.dumps(body)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


BODY: dict[str, object] = {
    "model": "default",
    "messages": [{"role": "user", "content": "Tell me about rivers."}],
    "max_tokens": 6,
}


async def test_a_whole_answer_is_one_json_object(base_url: str) -> None:
    printed = await curl(f"{base_url}/chat/completions", BODY, "--include")
    head, _, body = printed.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK")
    assert "content-type: application/json" in head.lower()
    assert json.loads(body)["model"] == "default"


async def test_a_stream_is_events_that_end_with_done(base_url: str) -> None:
    printed = await curl(f"{base_url}/chat/completions", {**BODY, "stream": True}, "--include")
    head, _, body = printed.partition("\r\n\r\n")
    assert "content-type: text/event-stream" in head.lower()
    events = [event for event in body.split("\n\n") if event]
    assert events[-1] == "data: [DONE]"
    assert events[-2].startswith(": weir endpoint=smollm2-135m-")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert len(chunks) >= 6
    assert {chunk["model"] for chunk in chunks} == {"default"}


async def test_a_mistake_is_told_in_openais_shape(base_url: str) -> None:
    printed = await curl(f"{base_url}/chat/completions", {"model": "default"})
    error = json.loads(printed)["error"]
    assert error["param"] == "messages"
    assert error["weir"]["stage"] == "request"
