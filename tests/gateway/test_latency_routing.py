"""The default policy through real sockets: answers that show no first output, and an endpoint that only refuses."""

from __future__ import annotations

import asyncio

from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import Reply, r0
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    chat_stream,
    eventually,
    gate,
    head,
    json_answer,
    pause,
)

LATENCY = {"routing": {"policy": "latency"}}
WHOLE: object = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
}


async def test_an_endpoint_that_comes_back_and_gives_whole_answers_only_is_not_kept_to_one_at_a_time() -> None:
    released = asyncio.Event()
    holding = [False]

    def script(request: Request) -> Script:
        if request.asked_for_stream:
            return [pause(0.05), *chat_stream("yes")]
        return [gate(released), *json_answer(WHOLE)] if holding[0] else json_answer(WHOLE)

    async with (
        ScriptedUpstream(script) as a,
        ScriptedUpstream(script) as b,
        running_gateway(config(a.url, b.url, pool_options=LATENCY)) as gw,
    ):
        while min(len(a.requests), len(b.requests)) < 4:
            await asyncio.gather(*[gw.post(r0(stream=True)) for _ in range(8)])
        for order in ("drain", "readmit"):
            await gw.post({}, f"/weir/endpoints/m-1/{order}")
        while len(b.requests) < 20:
            await gw.post(r0(stream=False))
        holding[0] = True
        had = len(a.requests), len(b.requests)
        posted = [asyncio.ensure_future(gw.post(r0(stream=False))) for _ in range(12)]
        await eventually(lambda: len(a.requests) + len(b.requests) == sum(had) + 12)
        assert min(len(a.requests) - had[0], len(b.requests) - had[1]) >= 3
        released.set()
        assert {reply.status for reply in await asyncio.gather(*posted)} == {200}


async def test_an_endpoint_that_refuses_every_request_at_once_draws_no_traffic() -> None:
    """A model that it does not have is the client's error, and ejects nobody."""
    missing = json_answer({"error": {"message": "The model `m` does not exist.", "code": 404}}, 404)
    answers = asyncio.Event()

    def slow(_: Request) -> Script:
        return [head(200, "sse"), gate(answers), *chat_stream("yes")[1:]]

    async with (
        ScriptedUpstream(missing) as bad,
        ScriptedUpstream(slow) as good,
        running_gateway(config(bad.url, good.url, pool_options=LATENCY)) as gw,
    ):
        posted: list[asyncio.Future[Reply]] = []
        for count in range(1, 51):
            posted.append(asyncio.ensure_future(gw.post(r0(stream=True))))
            await eventually(lambda: sum(task.done() for task in posted) + len(good.requests) == count)  # noqa: B023
        assert len(bad.requests) < 12
        answers.set()
        assert {reply.status for reply in await asyncio.gather(*posted)} == {200, 404}
