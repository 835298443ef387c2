"""aiohttp: one session that reads streams line by line, all calls at once and then one after another."""

from __future__ import annotations

import asyncio
import json

import aiohttp

from tests.clients.programs.calls import BASE_URL, Found
from tests.clients.programs.plain import CALLS, read


async def ask(session: aiohttp.ClientSession, call: str, path: str, body: Found) -> Found:
    async with session.post(BASE_URL + path, json=body) as response:
        lines = [line async for line in response.content]
        return read(call, response.status, b"".join(lines).decode())


async def main() -> None:
    async with aiohttp.ClientSession() as session:
        together = await asyncio.gather(*(ask(session, *call) for call in CALLS))
        in_turn = [await ask(session, *call) for call in CALLS]  # over the connections that are open by now
    found = {name: answer for (name, _, _), answer in zip(CALLS, in_turn, strict=True)}
    for one, other in zip(together, in_turn, strict=True):
        assert one.keys() == other.keys(), (one, other)
        assert one.get("text") == other.get("text")
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
