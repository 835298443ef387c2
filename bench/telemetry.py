"""What all telemetry of a request costs: CPU time of the whole process, its threads included, against none.

    python -m bench.telemetry [--requests 20000] [--per-second 1000]

Closed records of streams of 64 chunks go to everything that reads them: traces (exported to a receiver in another
process, which throws them away), what is usual, metrics, access lines (to a file), the flight recorder. What a running
request does for it, a clock read and an addition a chunk, is in the benchmark of the whole gateway.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from adapters.types import Usage
from gateway.app import App
from gateway.config import Config
from gateway.flight import AttemptRecord, FlightRecord
from gateway.flight_log import FlightLog, Observer
from gateway.paces import Paces
from gateway.request_head import RequestHead

SINK = """
from http.server import BaseHTTPRequestHandler, HTTPServer

class Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    def log_message(self, *told): pass

server = HTTPServer(("127.0.0.1", 0), Sink)
print(server.server_port, flush=True)
server.serve_forever()
"""
SCOPE = {"http_version": "1.1", "scheme": "http", "headers": [(b"host", b"weir"), (b"user-agent", b"bench")]}
SLICE = 20


def closed(app: App, number: int) -> FlightRecord:
    """One good stream, its marks as the gateway would have set them."""
    record = FlightRecord(f"r{number:030x}", "POST", "/v1/chat/completions", time.perf_counter(), time.time(), [])
    app.tracing.begin(record, RequestHead(b"r"), SCOPE)
    at_s = record.received_s
    record.operation, record.pool, record.model, record.stream = "chat", "m", "m", True
    record.body_read_s = record.queued_s = record.admitted_s = at_s
    first_s, last_s = at_s + 0.1, at_s + 3.3
    attempt = AttemptRecord("m-0", "fewest in flight: 0", at_s, 0.0, "00f067aa0ba902b7")
    attempt.connected_s = attempt.sent_s = at_s
    attempt.head_s = attempt.first_byte_s = attempt.first_output_s = first_s
    attempt.ended_s = last_s
    attempt.reused, attempt.status, attempt.outcome, attempt.engine = True, 200, "ok", "vllm"
    attempt.in_flight = 3
    record.attempts.append(attempt)
    record.first_output_s, record.last_output_s = first_s, last_s
    record.chunks, record.bytes_in, record.bytes_out = 64, 400, 14_000
    record.usage, record.status, record.outcome = Usage(100, 64), 200, "ok"
    record.longest_gap_s = 0.06
    return record


async def measured(config: Config, out: Path, requests: int, per_second: float, observers: str) -> float:
    """Returns CPU microseconds a request."""
    with out.open("wb") as lines:
        app = App(config, lines)
        readers: Sequence[Observer] = ()
        if observers == "all":
            readers = [r.observe for r in (app.tracing, Paces(), app.metrics, app.access_log, app.recorder)]
            app.tracing.start()
            app.recorder.start()
        flights = FlightLog(tuple(readers))
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        for number in range(requests):
            record = closed(app, number)
            flights.in_flight += 1
            flights.close(record)
            if number % SLICE == 0:
                await asyncio.sleep(max(begun_s + number / per_second - time.perf_counter(), 0))
        flights.settle()
        if observers == "all":
            await app.tracing.stop()
            await asyncio.to_thread(app.recorder.stop)
            app.access_log.flush()
        used_s = time.process_time() - cpu_s
        await app.fleet.aclose()
    assert app.recorder.dropped == 0
    return used_s / requests * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--per-second", type=float, default=1000)
    args = parser.parse_args()
    gc.disable()  # as `weir serve` does
    sink = subprocess.Popen((sys.executable, "-c", SINK), stdout=subprocess.PIPE, text=True)
    assert sink.stdout is not None
    url = f"http://127.0.0.1:{sink.stdout.readline().strip()}"
    pools = {"m": {"endpoints": [{"url": "http://127.0.0.1:9", "engine": "vllm"}]}}
    print("| telemetry | CPU us a request | more than none |\n| --- | ---: | ---: |")
    try:
        none_us = 0.0
        for title, observers, more in (
            ("none", "none", {}),
            ("no traces", "all", {}),
            ("default keep rules: a tenth, slow ones, failures", "all", {"telemetry": {"otlp_endpoint": url}}),
            ("every request traced", "all", {"telemetry": {"otlp_endpoint": url, "sample_ratio": 1}}),
        ):
            with tempfile.TemporaryDirectory() as folder:
                recorder = {"path": str(Path(folder, "flights.sqlite"))}
                config = Config.model_validate({"pools": pools, "recorder": recorder, **more})
                lines = Path(folder, "access.jsonl")
                cost_us = uvloop.run(measured(config, lines, args.requests, args.per_second, observers))
            none_us = none_us or cost_us
            print(f"| {title} | {cost_us:.1f} | {cost_us - none_us:.1f} |", flush=True)
    finally:
        sink.terminate()
        sink.wait()


if __name__ == "__main__":
    main()
