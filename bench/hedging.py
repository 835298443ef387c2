"""What a second attempt brings where an engine is slow now and then: time to the first token, with `hedge` and without.

    python bench/hedging.py [--requests 1500] [--rate 25] [--share 0.06] [--slow-ratio 0.05] [--slow 1.0]

Three mock engines answer streams; the first token comes after 40 to 80 ms and, by chance, `--slow` seconds later.
Requests come at random times. Counted are the streams that the engines were asked for, and how long an engine was left
to work on an attempt after the client had its first token from another.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import uvloop
from weir_port import port_of

ROOT = Path(__file__).resolve().parents[1]
ENGINES = 3
LEARNING = 300
TOKENS = 8
TOKEN_S = 0.02
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_ID = re.compile(rb"x-request-id: *(\S+)", re.IGNORECASE)


@dataclass
class Seen:
    """What the engines saw.

    Attributes:
        starts: How many streams they were asked for.
        left_s: When a request's stream was broken off, by its id.
    """

    starts: int = 0
    left_s: dict[bytes, float] = field(default_factory=dict)


class Engine:
    """Answers each request with a stream."""

    def __init__(self, seen: Seen, slow_ratio: float, slow_s: float) -> None:
        self._seen = seen
        self._slow_ratio = slow_ratio
        self._slow_s = slow_s

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length, id = _LENGTH.search(head), _ID.search(head)
                if not head.startswith(b"POST") or length is None or id is None:
                    writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                    continue
                await reader.readexactly(int(length[1]))
                self._seen.starts += 1
                if not await self._answer(reader, writer):
                    self._seen.left_s[id[1]] = perf_counter()
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Returns whether the client stayed."""
        slow_s = self._slow_s if random.random() < self._slow_ratio else 0.0
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        if await _leaves(reader, random.uniform(0.04, 0.08) + slow_s):
            return False
        for at in range(TOKENS):
            if await _leaves(reader, TOKEN_S if at else 0.0) or writer.is_closing():
                return False
            writer.write(_event({"content": "word "}, "stop" if at == TOKENS - 1 else None))
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        return True


async def _leaves(reader: asyncio.StreamReader, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            return not await reader.read(1)
    except TimeoutError:
        return False


def _event(delta: dict[str, str], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    data = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "mock", "choices": [choice]}
    event = b"data: " + json.dumps(data).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


async def _ask(port: int, id: str, firsts_s: dict[bytes, float]) -> float:
    """Reads one stream; returns the time to its first token."""
    body = json.dumps({"model": "mock", "stream": True, "messages": [{"role": "user", "content": "hello " * 20}]})
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    begun_s = perf_counter()
    writer.write(
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: weir\r\ncontent-type: application/json\r\nx-request-id: {id}\r\n"
        f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"Weir answered {head[:60]!r}")
    await reader.readuntil(b'"content":')
    first_s = firsts_s[id.encode()] = perf_counter()
    rest = await reader.read(-1)
    writer.close()
    if b"[DONE]" not in rest:
        raise SystemExit(f"a stream ended with {rest[-200:]!r}")
    return first_s - begun_s


async def _load(port: int, requests: int, rate: float, name: str, firsts_s: dict[bytes, float]) -> list[float]:
    tasks = list[asyncio.Task[float]]()
    for number in range(requests):
        tasks.append(asyncio.create_task(_ask(port, f"{name}-{number}", firsts_s)))
        await asyncio.sleep(random.expovariate(rate))
    return await asyncio.gather(*tasks)


async def _measure(arguments: argparse.Namespace, share: float) -> str:
    random.seed(1)
    seen, firsts_s = Seen(), dict[bytes, float]()
    engines = [Engine(seen, arguments.slow_ratio, arguments.slow) for _ in range(ENGINES)]
    servers = [await asyncio.start_server(engine.serve, "127.0.0.1", 0) for engine in engines]
    urls = [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    pool = {"endpoints": [{"url": url, "engine": "openai"} for url in urls], "hedge": {"share": share}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weir.yaml"
        path.write_text(json.dumps({"listen": "127.0.0.1:0", "recorder": {"path": "memory"}, "pools": {"mock": pool}}))
        with (Path(folder) / "access.log").open("wb") as access:
            weir = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gateway", "serve", "-c", str(path)),
                cwd=ROOT,
                stdout=access,
                stderr=subprocess.PIPE,
            )
        try:
            port = await port_of(weir)
            await _load(port, LEARNING, arguments.rate, "learning", firsts_s)
            seen.starts = 0
            seen.left_s.clear()
            ttfts_s = sorted(await _load(port, arguments.requests, arguments.rate, "measured", firsts_s))
            withheld = await _withheld(port)
        finally:
            weir.terminate()
            await weir.communicate()
            for server in servers:
                server.close()
    p50_ms, p95_ms, p99_ms = (1e3 * ttfts_s[int(q * len(ttfts_s))] for q in (0.5, 0.95, 0.99))
    extra = seen.starts / arguments.requests - 1
    ended_ms = sorted(1e3 * (left_s - firsts_s[id]) for id, left_s in seen.left_s.items())
    name = f"hedge.share {share:g}" if share else "without"
    told = f"{name:>16}: TTFT p50 {p50_ms:.0f}, p95 {p95_ms:.0f}, p99 {p99_ms:.0f} ms; {extra:.1%} extra starts"
    if ended_ms:
        told += f"; {len(ended_ms)} ended at the engine, the last {ended_ms[-1]:.1f} ms after; withheld: {withheld}"
    return told


async def _withheld(port: int) -> str:
    """Returns why late requests got no second attempt, and how many."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: weir\r\nconnection: close\r\n\r\n")
    told = await reader.read(-1)
    writer.close()
    counts = re.findall(rb'^weir_hedges_withheld_total{.*reason="(\w+)"} (\d+)', told, re.MULTILINE)
    return ", ".join(f"{count.decode()} {reason.decode()}" for reason, count in counts) or "none"


async def _run(arguments: argparse.Namespace) -> None:
    for share in (0.0, arguments.share):
        print(await _measure(arguments, share), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--rate", type=float, default=25.0, help="requests a second (%(default)s)")
    parser.add_argument("--share", type=float, default=0.06, help="of hedge (%(default)s)")
    parser.add_argument("--slow-ratio", type=float, default=0.05, help="share of the slow first tokens (%(default)s)")
    parser.add_argument("--slow", type=float, default=1.0, help="how much later these come, in seconds (%(default)s)")
    uvloop.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
