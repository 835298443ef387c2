"""Endpoints from which nothing comes are taken out, but not while their engine may load the model."""

from __future__ import annotations

from contextlib import ExitStack
from time import perf_counter

import pytest

from gateway.config import Config
from gateway.fleet import Fleet
from gateway.probing.wedge_watch import WedgeWatch
from policies.wedge import Slowest


class Waits:
    """A stream without an output; implements ``own_load.Outputs``."""

    output_s = None

    def __init__(self, sent_s: float) -> None:
        self.awaits_first_s = sent_s
        self.given_up = False

    def give_up(self) -> None:
        self.given_up = True


@pytest.mark.parametrize(("engine", "hangs"), [("vllm", True), ("ollama", False)])
async def test_an_ollama_that_was_idle_may_load_its_model_for_as_long_as_the_time_outs_let_it(
    engine: str, hangs: bool
) -> None:
    endpoints = [{"url": f"http://127.0.0.1:{port}", "engine": engine} for port in (8, 9)]
    fleet = Fleet(Config.model_validate({"pools": {"m": {"endpoints": endpoints}}}))
    endpoint = fleet.pools["m"].endpoints["m-0"]
    sent_s = perf_counter() - 40.0
    endpoint.own.slowest, endpoint.own.output_s = Slowest(0.5, 10.0), sent_s - 600.0
    waiting = [Waits(sent_s), Waits(sent_s)]
    watch = WedgeWatch(fleet)
    with ExitStack() as stack:
        for waits in waiting:
            stack.enter_context(endpoint.own.lease(10, 10, sent_s)).outputs = waits
        watch.start()
        watch.stop()
    assert endpoint.healthy != hangs
    assert [waits.given_up for waits in waiting] == [hangs, hangs]
    await fleet.aclose()
