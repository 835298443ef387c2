"""What joining small embedding requests brings: requests a second and latencies, with `embeddings_batch` and without.

    python bench/embeddings_batch.py [--clients 64] [--seconds 5] [--inputs 32] [--wait 5ms] [--pass-ms 4]

A mock engine works on one request at a time: a request takes `--pass-ms`, and each of its inputs `--input-ms` more, as
a forward pass does that is short of work. It sleeps through that, so that the machine belongs to Weir and the clients.
Engines that batch across requests by themselves (vLLM) gain less: there only the cost of a request is saved.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import uvloop
from weir_port import port_of

ROOT = Path(__file__).resolve().parents[1]
DIMENSIONS = 384
WARM_UP_S = 0.5
VECTOR = json.dumps([round(0.001 * at - 0.19, 6) for at in range(DIMENSIONS)])


class Engine:
    """Answers embedding requests one after the other."""

    def __init__(self, pass_s: float, input_s: float) -> None:
        self._pass_s = pass_s
        self._input_s = input_s
        self._free_s = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                asked: Any = json.loads(await reader.readexactly(_length(head)) or b"{}").get("input", [])
                inputs = 1 if isinstance(asked, str) else len(asked)
                if inputs:  # none: a probe
                    await self._work(inputs)
                writer.write(_answer(inputs))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _work(self, inputs: int) -> None:
        now_s = perf_counter()
        self._free_s = max(self._free_s, now_s) + self._pass_s + inputs * self._input_s
        await asyncio.sleep(self._free_s - now_s)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def _answer(inputs: int) -> bytes:
    items = ",".join(f'{{"object":"embedding","index":{at},"embedding":{VECTOR}}}' for at in range(inputs))
    usage = f'{{"prompt_tokens":{8 * inputs},"total_tokens":{8 * inputs}}}'
    body = f'{{"object":"list","data":[{items}],"model":"mock","usage":{usage}}}'.encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


async def _client(port: int, until_s: float, latencies_s: list[float], from_s: float) -> None:
    body = json.dumps({"model": "mock", "input": "how long does a short question take"}).encode()
    head = b"POST /v1/embeddings HTTP/1.1\r\nhost: weir\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (begun_s := perf_counter()) < until_s:
        writer.write(head % len(body) + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(f"Weir answered {answer[:60]!r}")
        await reader.readexactly(_length(answer))
        if begun_s >= from_s:
            latencies_s.append(perf_counter() - begun_s)
    writer.close()


async def _measure(arguments: argparse.Namespace, inputs: int) -> str:
    engine = Engine(arguments.pass_ms / 1e3, arguments.input_ms / 1e3)
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0)
    engine_port = server.sockets[0].getsockname()[1]
    pool = {
        "endpoints": [{"url": f"http://127.0.0.1:{engine_port}", "engine": "openai"}],
        "embeddings_batch": {"inputs": inputs, "wait": arguments.wait},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weir.yaml"
        path.write_text(json.dumps({"listen": "127.0.0.1:0", "pools": {"mock": pool}}))
        with (Path(folder) / "access.log").open("wb") as access:
            weir = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gateway", "serve", "-c", str(path)),
                cwd=ROOT,
                stdout=access,
                stderr=subprocess.PIPE,
            )
        try:
            port = await port_of(weir)
            latencies_s: list[float] = []
            from_s = perf_counter() + WARM_UP_S
            until_s = from_s + arguments.seconds
            await asyncio.gather(*(_client(port, until_s, latencies_s, from_s) for _ in range(arguments.clients)))
        finally:
            weir.terminate()
            await weir.communicate()
            server.close()
    latencies_s.sort()
    p50_ms, p99_ms = (1e3 * latencies_s[int(share * len(latencies_s))] for share in (0.5, 0.99))
    name = f"batches of {inputs}" if inputs else "each alone"
    rate = len(latencies_s) / arguments.seconds
    return f"{name:>14}: {rate:8.0f} requests/s, p50 {p50_ms:7.1f} ms, p99 {p99_ms:7.1f} ms"


async def _run(arguments: argparse.Namespace) -> None:
    for inputs in (0, arguments.inputs):
        print(await _measure(arguments, inputs), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--inputs", type=int, default=32, help="of embeddings_batch (%(default)s)")
    parser.add_argument("--wait", default="5ms", help="of embeddings_batch (%(default)s)")
    parser.add_argument("--pass-ms", type=float, default=4.0, help="engine time of a request (%(default)s)")
    parser.add_argument("--input-ms", type=float, default=0.1, help="engine time of an input (%(default)s)")
    uvloop.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
