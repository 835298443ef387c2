"""What is told of choices and of endpoints' health."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from gateway.config import Config
from gateway.metrics import Metrics
from tests.fakes.flown import fleet, samples, total
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0
from tests.fakes.scripted import ScriptedUpstream, chat_stream, in_turn, json_answer

BUSY: object = {"error": {"message": "busy"}}


async def test_every_choice_is_counted_with_its_policy_and_its_time() -> None:
    async with (
        ScriptedUpstream(in_turn(json_answer({"error": {"message": "no"}}, 500), chat_stream())) as u,
        running_gateway(config({"url": u.url, "id": "a"}, {"url": u.url, "id": "b"})) as gw,
    ):
        began_s = perf_counter()
        assert (await gw.post(r0())).done
        scrape = await gw.outcome("ok")
        assert scrape.values("weir_route_choices_total", pool="m", endpoint="a", policy="least_in_flight") == [1]
        assert scrape.values("weir_route_choices_total", pool="m", endpoint="b", policy="least_in_flight") == [1]
        assert scrape.total("weir_route_duration_seconds_count", pool="m") == 2
        assert 0 < scrape.total("weir_route_duration_seconds_sum") < perf_counter() - began_s


async def test_a_refusal_says_who_had_no_room() -> None:
    async with (
        ScriptedUpstream(json_answer(BUSY, 503)) as u,
        running_gateway(config(u.url, pool_options={"retries": {"attempts": 1}})) as gw,
    ):
        await gw.post(r0())
        scrape = await gw.outcome("shed")
        assert scrape.values("weir_shed_total", reason="engine_busy") == [1]
        assert scrape.values("weir_shed_total", reason="no_endpoint") == [0]


def test_ejections_and_returns_are_counted() -> None:
    of = fleet("vllm", "vllm")
    pool = of.pools["m"]
    subject = Metrics(of)
    endpoint = pool.endpoints["e0"]
    for _ in range(2):
        for _ in range(3):
            pool.probed(endpoint, "does not answer")
        endpoint.health = replace(endpoint.health, ejected_until_s=0.0)
        pool.probed(endpoint, None)
    read = samples(subject.render())
    assert total(read, "weir_endpoint_transitions_total", endpoint="e0", to="ejected") == 2
    assert total(read, "weir_endpoint_transitions_total", endpoint="e0", to="healthy") == 2
    assert total(read, "weir_endpoint_transitions_total", endpoint="e1") == 0


def hash_of(**endpoint: object) -> str:
    return Config.model_validate({"pools": {"m": {"endpoints": [{"url": "http://e", **endpoint}]}}}).hash


def test_the_hash_changes_with_the_configuration_but_not_with_its_credentials() -> None:
    assert hash_of() == hash_of()
    assert hash_of() != hash_of(model="x")
    assert hash_of(api_key="a") == hash_of(api_key="b")
    assert hash_of(headers={"x-key": "a"}) == hash_of(headers={"x-key": "b"})
