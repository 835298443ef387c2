"""aiohttp: one session that reads streams line by line, all calls at once and then one after another."""

from __future__ import annotations

import asyncio
from functools import partial

import aiohttp

from tests.clients.programs.calls import BASE_URL, MODELS, Found, tell_async
from tests.clients.programs.plain import CALLS, read, request


async def ask(session: aiohttp.ClientSession, call: str, model: str) -> Found:
    path, body = request(call, model)
    async with session.post(BASE_URL + path, json=body) as response:
        lines = [line async for line in response.content]
        return read(call, response.status, b"".join(lines).decode())


async def main() -> None:
    async with aiohttp.ClientSession() as session:
        together = {(call, model): asyncio.create_task(ask(session, call, model)) for call in CALLS for model in MODELS}
        await asyncio.wait(together.values())

        async def ask_again(call: str, model: str) -> Found:  # over the connections that are open by now
            one, other = together[call, model].result(), await ask(session, call, model)
            assert one.keys() == other.keys(), (one, other)
            assert one.get("text") == other.get("text")
            return other

        await tell_async({call: partial(ask_again, call) for call in CALLS})


if __name__ == "__main__":
    asyncio.run(main())
