"""What the process observes of itself."""

from __future__ import annotations

import gc
import time

from gateway.instruments.gc_pauses import GENERATIONS, GcPauses
from gateway.instruments.histogram import SMALL, Histogram
from gateway.instruments.loop_lag import LoopLag
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import ScriptedUpstream, eventually, head, raw

HELD_S = 0.3


async def test_a_loop_that_is_held_up_is_late_by_as_much() -> None:
    lag = Histogram(SMALL)
    watch = LoopLag(lag)
    watch.start()
    time.sleep(HELD_S)  # noqa: ASYNC251 - it is what is observed
    await eventually(lambda: sum(lag.counts) == 1)
    watch.stop()
    assert lag.sums[0] >= HELD_S - 0.1


async def test_a_watch_that_was_stopped_observes_nothing_more() -> None:
    lag = Histogram(SMALL)
    watch = LoopLag(lag)
    watch.start()
    watch.stop()
    other = LoopLag(later := Histogram(SMALL))
    other.start()
    await eventually(lambda: sum(later.counts) >= 2)
    other.stop()
    assert sum(lag.counts) == 0


def test_a_collection_is_observed_under_its_generation() -> None:
    pauses = tuple(Histogram(SMALL) for _ in GENERATIONS)
    watch = GcPauses(pauses)
    gc.disable()
    try:
        watch.start()
        for generation in (0, 1, 1, 2):
            gc.collect(generation)
        watch.stop()
        gc.collect()
    finally:
        gc.enable()
    assert [sum(histogram.counts) for histogram in pauses] == [1, 2, 1]
    assert all(histogram.sums[0] > 0 for histogram in pauses)


async def test_a_gateway_watches_itself_as_long_as_it_runs() -> None:
    before = len(gc.callbacks)
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        assert len(gc.callbacks) == before + 1
        gc.collect()
        scrape = await gw.settled(lambda m: m.total("weir_event_loop_lag_seconds_count") >= 1)
        assert scrape.total("weir_gc_pause_seconds_count", generation="2") >= 1
        assert scrape.values("weir_stream_buffer_bytes") == [0]
        assert len(scrape.values("weir_config_hash_info")) == 1
        assert scrape.total("weir_metrics_series") > 3
    assert len(gc.callbacks) == before


async def test_what_a_client_does_not_take_is_told() -> None:
    script = [head(200, "sse"), *[raw(b": " + b"x" * 65_000 + b"\n\n")] * 200]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as stalled,
    ):
        await stalled.send(request_bytes("POST", "/v1/rerank", r0()))
        await gw.settled(lambda m: m.total("weir_stream_buffer_bytes") > 0)
