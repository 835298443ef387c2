"""What was said is in the access lines of pools that capture it, its beginning only, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.gateway import config, running_gateway
from tests.fakes.otlp_sink import otlp_sink
from tests.fakes.raw_client import r0, t0
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    delta,
    done,
    end,
    fin,
    head,
    json_answer,
    role,
    rst,
    tok,
)

PROMPT, ANSWER = "a secret question", "a secret answer"
QUESTION = r0(messages=[{"role": "user", "content": PROMPT}])
BOTH = {"prompts": True, "answers": True}


async def line_of(script: Script, body: dict[str, Any], capture: dict[str, Any], path: str = "chat/completions") -> Any:
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url, pool_options={"capture": capture})) as gw,
    ):
        await gw.post(body, f"/v1/{path}")
        [line] = await gw.logs.access(1)
        return line


@pytest.mark.parametrize("stream", [True, False])
async def test_both_are_told_where_both_are_captured(stream: bool) -> None:
    script = chat_stream(ANSWER) if stream else json_answer(completion(ANSWER))
    line = await line_of(script, {**QUESTION, "stream": stream}, BOTH)
    assert json.loads(line["prompt"])["messages"] == QUESTION["messages"]
    assert line["answer"] == ANSWER


@pytest.mark.parametrize(("prompts", "answers"), [(False, False), (True, False), (False, True)])
async def test_only_what_was_asked_for_is_told(prompts: bool, answers: bool) -> None:
    line = await line_of(chat_stream(ANSWER), QUESTION, {"prompts": prompts, "answers": answers})
    assert ("prompt" in line, "answer" in line) == (prompts, answers)


async def test_beginnings_are_as_long_as_asked_for() -> None:
    long = [head(200, "sse"), role(), *[tok("é" * 10)] * 500, fin("stop"), done(), end()]
    line = await line_of(long, r0(messages=[{"role": "user", "content": "é" * 5000}]), {**BOTH, "max_chars": 1200})
    assert line["answer"] == "é" * 1200
    assert len(line["prompt"]) == 1200


async def test_reasoning_and_text_completions_are_answers_too() -> None:
    script = [head(200, "sse"), role(), delta({"reasoning_content": "hm "}), tok("yes"), fin("stop"), done(), end()]
    assert (await line_of(script, QUESTION, BOTH))["answer"] == "hm yes"
    text = json_answer(
        {"object": "text_completion", "choices": [{"index": 0, "text": ANSWER, "finish_reason": "stop"}]}
    )
    assert (await line_of(text, t0(stream=False), BOTH, "completions"))["answer"] == ANSWER


async def test_half_an_answer_is_told_as_far_as_it_came() -> None:
    line = await line_of([head(200, "sse"), role(), tok("a sec"), tok("ret"), rst()], QUESTION, BOTH)
    assert (line["outcome"], line["answer"]) == ("upstream_error", "a secret")


async def test_tokens_are_counted_as_without() -> None:
    script = chat_stream("abc")
    with_it, without = await line_of(script, QUESTION, BOTH), await line_of(script, QUESTION, {})
    for key in ("chunks", "input_tokens", "output_tokens"):
        assert with_it[key] == without[key]


async def test_it_is_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    flights = tmp_path / "flights"
    with otlp_sink() as sink:
        more: dict[str, Any] = {
            "telemetry": {"otlp_endpoint": sink.url, "sample_ratio": 1},
            "recorder": {"path": str(flights)},
        }
        async with (
            ScriptedUpstream([head(200, "sse"), role(), tok(ANSWER), rst()]) as u,
            running_gateway(config(u.url, pool_options={"capture": BOTH}, **more)) as gw,
        ):
            reply = await gw.post(QUESTION)
            metrics = await gw.metrics()
            await sink.whole()
    assert PROMPT not in reply.body.decode()
    assert "secret" not in metrics.text
    assert b"secret" not in b"".join(post.body for post in sink.posts)
    assert "secret" not in str(sink.spans)
    assert b"secret" not in flights.read_bytes()
