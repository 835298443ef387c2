"""How soon a bad endpoint is out, and what it costs: 100 streams over four engines, one of which goes bad.

python -m bench.health [--streams 100] [--seconds 12]

Weir runs as a process of its own, the engines are scripted ones on real sockets. For each kind of trouble it prints how
long it took until the endpoint was ejected, the endpoint's share of the attempts after 3 s and after the ejection, and
the requests that failed although another endpoint could have served them: those without any output.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.fakes.raw_client import Reply, connect, r0, request_bytes
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    done,
    end,
    fin,
    gate,
    hang,
    head,
    json_answer,
    pause,
    role,
    tok,
    unused_port,
)
from tests.fakes.weir_process import weir

ENGINES = 4
WARM_S = 3.0
SHARE_AFTER_S = 3.0
MISUSE = "too long"
CHAT = "/v1/chat/completions"


def stream(slower: float = 1.0, flows: asyncio.Event | None = None) -> Script:
    """0.1 s to the first token, then ten, 20 ms apart, as long as it flows."""
    waits = [gate(flows)] if flows is not None else []
    tokens = [step for _ in range(10) for step in (pause(0.02 * slower), *waits, tok("a"))]
    return [head(200, "sse"), role(), pause(0.1 * slower), *tokens, fin("stop"), done(), end()]


TOO_LONG = json_answer({"error": {"message": "too long", "code": 400}}, 400)
GOOD, SLOW = stream(), stream(3.0)
KINDS: dict[str, Script | None] = {
    "killed": None,
    "wedged": [head(200, "sse"), hang()],
    "slowed 3x": SLOW,
    "500 at once": json_answer({"error": {"message": "engine trouble", "code": 500}}, 500),
    "60 % of 500": json_answer({"error": {"message": "engine trouble", "code": 500}}, 500),
    "400 storm": GOOD,
}


@dataclass(slots=True)
class Ended:
    """One request of a client."""

    began_s: float
    endpoint: str
    output: bool
    whole: bool


class Run:
    """One kind of trouble."""

    def __init__(self, kind: str, streams: int, seconds: float) -> None:
        self.kind = kind
        self._streams = streams
        self._seconds = seconds
        self._flows = asyncio.Event()
        self._flows.set()
        self._script: Script = stream(flows=self._flows)
        self._asked = 0
        self._bad_arrivals_s: list[float] = []
        self._all_arrivals_s: list[float] = []
        self._ended: list[Ended] = []
        self._stop = False
        self._port = unused_port()
        self._trouble_s = float("inf")
        self._ttft_s = 0.0

    def _bad(self, request: Request) -> Script:
        self._bad_arrivals_s.append(perf_counter())
        self._all_arrivals_s.append(perf_counter())
        if MISUSE.encode() in request.body:
            return TOO_LONG
        self._asked += 1
        return GOOD if self.kind.startswith("60") and self._asked % 5 in (1, 3) else self._script

    def _good(self, request: Request) -> Script:
        self._all_arrivals_s.append(perf_counter())
        return TOO_LONG if MISUSE.encode() in request.body else GOOD

    async def _post(self, body: object) -> Reply:
        async with connect(self._port) as connection:
            await connection.send(request_bytes("POST", CHAT, body))
            return await connection.reply(within_s=120.0)

    async def _client(self, body: Callable[[], object]) -> None:
        while not self._stop:
            began_s = perf_counter()
            reply = await self._post(body())
            whole = reply.status == 400 or (reply.status == 200 and reply.done)
            output = reply.status == 200 and bool(reply.content())
            self._ended.append(Ended(began_s, reply.header("x-weir-endpoint") or "", output, whole))
            if reply.status == 400:
                await asyncio.sleep(0.005)

    async def _listed(self) -> list[dict[str, Any]]:
        async with connect(self._port) as connection:
            await connection.send(request_bytes("GET", "/weir/endpoints"))
            found: list[dict[str, Any]] = (await connection.reply()).json()
            return found

    async def _ejected_after_s(self) -> tuple[float | None, str]:
        """Watches for as long as the run lasts; returns when the endpoint was first seen ejected, and why."""
        while perf_counter() < self._trouble_s + self._seconds:
            first = (await self._listed())[0]
            if first["health"] == "ejected":
                return perf_counter() - self._trouble_s, str(first["reason"])
            await asyncio.sleep(0.02)
        return None, ""

    async def measure(self, folder: Path) -> tuple[str, ...]:
        """Returns a row of the table."""
        async with AsyncExitStack() as stack:
            life = await stack.enter_async_context(AsyncExitStack())
            bad = await life.enter_async_context(ScriptedUpstream(self._bad))
            engines = [bad]
            for _ in range(ENGINES - 1):
                engines.append(await stack.enter_async_context(ScriptedUpstream(self._good)))
            file = folder / f"{self.kind.replace(' ', '-')}.yaml"
            endpoints = [{"url": engine.url, "engine": "vllm"} for engine in engines]
            pool = {"endpoints": endpoints, "timeouts": {"first_token": "8s", "stall": "8s"}}
            listen = {"listen": f"127.0.0.1:{self._port}", "recorder": {"path": str(folder / "flights.db")}}
            file.write_text(json.dumps({**listen, "pools": {"m": pool}}))
            process = await stack.enter_async_context(weir("serve", "-c", str(file)))
            await process.says("serving m on")
            clients = [asyncio.ensure_future(self._client(r0)) for _ in range(self._streams)]
            await asyncio.sleep(WARM_S)
            self._ttft_s = (await self._listed())[0]["ttft_s"] or 0.0
            self._trouble_s = perf_counter()
            if self.kind == "killed":
                await life.aclose()
            elif self.kind == "400 storm":
                misuse = r0(user=MISUSE)
                clients += [asyncio.ensure_future(self._client(lambda: misuse)) for _ in range(self._streams // 4)]
            else:
                script = KINDS[self.kind]
                assert script is not None
                self._script = script
                if self.kind == "wedged":
                    self._flows.clear()  # what runs there stops as well
            after_s, reason = await self._ejected_after_s()
            await asyncio.sleep(max(self._trouble_s + self._seconds - perf_counter(), 0.0))
            self._stop = True
            await asyncio.gather(*clients)
        return self._row(after_s, reason)

    def _row(self, after_s: float | None, reason: str) -> tuple[str, ...]:
        late_s = self._trouble_s + SHARE_AFTER_S
        share = self._share(late_s)
        out = "-" if after_s is None else f"{100 * self._share(self._trouble_s + after_s):.1f} %"
        unserved = sum(not e.whole and not e.output for e in self._ended)
        broken = sum(not e.whole and e.output for e in self._ended)
        shown = "not ejected" if after_s is None else f"{after_s:.2f} s"
        return (
            self.kind,
            f"{self._ttft_s:.2f} s",
            shown,
            reason,
            f"{100 * share:.1f} %",
            out,
            str(len(self._ended)),
            str(unserved),
            str(broken),
        )

    def _share(self, since_s: float) -> float:
        bad = sum(at_s >= since_s for at_s in self._bad_arrivals_s)
        total = sum(at_s >= since_s for at_s in self._all_arrivals_s)
        return bad / max(total, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--only", choices=KINDS, help="one kind of trouble")
    args = parser.parse_args()
    columns = (
        "trouble",
        "TTFT before",
        "ejected after",
        "why",
        "share after 3 s",
        "share once out",
        "requests",
        "unserved",
        "broken off",
    )
    table = Table(*columns)
    with tempfile.TemporaryDirectory() as folder:
        for kind in [args.only] if args.only else KINDS:
            table.add_row(*asyncio.run(Run(kind, args.streams, args.seconds).measure(Path(folder))))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
