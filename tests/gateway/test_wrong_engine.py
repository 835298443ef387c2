"""An engine is spoken to as what it is, whatever the configuration calls it; the operator is told once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adapters import ADAPTERS
from gateway.config import PoolConfig
from gateway.endpoint import Endpoint
from gateway.pool import Pool
from policies.wedge import Slowest
from tests.fakes.gateway import config, running_gateway
from tests.fakes.named_engines import ENGINES, cards, engine, http, plain
from tests.fakes.probing import probing
from tests.fakes.raw_client import r0
from tests.fakes.script import Step, wire
from tests.fakes.scripted import ScriptedUpstream, chat_stream, eventually

REGISTERED = sorted(set(ENGINES) & set(ADAPTERS) - {"openai"})


@pytest.mark.parametrize("name", REGISTERED)
@pytest.mark.parametrize("configured", ["auto", *REGISTERED])
async def test_the_engine_that_answers_is_spoken_to(
    name: str, configured: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with engine(name) as u, probing(u.url, configured, model=ENGINES[name][2][0]) as endpoint:
        await eventually(lambda: endpoint.recognised)
        asked = len(u.probes)
        await eventually(lambda: len(u.probes) > asked + 3)
        assert (endpoint.adapter.name, endpoint.engine_version) == (name, ENGINES[name][1])
    told = [record for record in caplog.records if record.name == "weir.probes"]
    wrong = configured not in ("auto", name)
    # An engine without a version that is what the configuration says is no news
    assert len(told) == (configured != name or ENGINES[name][1] != "")
    for record in told:
        assert record.levelname == ("WARNING" if wrong else "INFO")
        words = ("m-0", name, ENGINES[name][1], *((configured,) if wrong else ()))
        assert all(word in record.getMessage() for word in words)


async def test_whoever_names_no_engine_is_what_the_configuration_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with engine("openai") as u, probing(u.url, "sglang") as endpoint:
        await eventually(lambda: endpoint.recognised)
        assert (endpoint.adapter.name, endpoint.engine_version) == ("sglang", "")
    assert not [record for record in caplog.records if record.name == "weir.probes"]


async def test_an_operator_may_insist_on_plain_openai(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with engine("vllm") as u, probing(u.url, "openai") as endpoint:
        await eventually(lambda: endpoint.recognised)
        assert endpoint.adapter.name == "openai"
    assert not [record for record in caplog.records if record.name == "weir.probes"]


async def test_an_engine_that_comes_back_is_asked_again() -> None:
    health: list[Step] = [wire(http(b""))]
    version: list[Step] = [wire(http({"version": "0.33.0"}))]
    paths = {**plain(ENGINES["vllm"][0]), "/health": health, "/version": version}
    async with ScriptedUpstream(chat_stream(), plain=paths) as u, probing(u.url, "vllm") as endpoint:
        await eventually(lambda: endpoint.engine_version == "0.33.0")
        health[:] = [wire(http(b"", status="503 Service Unavailable"))]
        await eventually(lambda: not endpoint.recognised)
        version[:] = [wire(http({"version": "0.34.0"}))]
        health[:] = [wire(http(b""))]
        await eventually(lambda: endpoint.engine_version == "0.34.0")


async def test_another_engine_that_comes_back_in_its_place_is_spoken_to() -> None:
    health: list[Step] = [wire(http(b""))]
    listed: list[Step] = [wire(http(cards("sglang", "m")))]
    paths = {**plain({}), "/health": health, "/ready": health, "/v1/models": listed}
    async with ScriptedUpstream(chat_stream(), plain=paths) as u, probing(u.url, "vllm") as endpoint:
        await eventually(lambda: endpoint.adapter.name == "sglang")
        health[:] = [wire(http(b"", status="503 Service Unavailable"))]
        await eventually(lambda: not endpoint.recognised)
        listed[:] = [wire(http(cards("nobody", "m")))]
        health[:] = [wire(http(b""))]
        await eventually(lambda: endpoint.adapter.name == "vllm")


async def test_another_engine_that_took_its_place_between_two_probes_is_found_by_another_status() -> None:
    ready: list[Step] = [wire(http(b""))]
    listed: list[Step] = [wire(http(cards("sglang", "m")))]
    paths = {**plain({}), "/ready": ready, "/v1/models": listed}
    async with ScriptedUpstream(chat_stream(), plain=paths) as u, probing(u.url, "sglang") as endpoint:
        await eventually(lambda: endpoint.recognised)
        listed[:] = [wire(http(cards("vllm", "m")))]
        ready[:] = [wire(http(b"", status="404 Not Found"))]
        await eventually(lambda: endpoint.adapter.name == "vllm")
        assert endpoint.health.name == "healthy"


def _refused(pool: Pool, endpoint: Endpoint) -> None:
    pool.failed(endpoint, "connect")


@pytest.mark.parametrize("sign", [_refused, Pool.loading, Pool.readmit], ids=["refused", "loading", "readmitted"])
async def test_an_engine_that_may_have_been_restarted_between_two_probes_is_asked_again_and_measured_anew(
    sign: Callable[[Pool, Endpoint], None],
) -> None:
    listed: list[Step] = [wire(http(cards("sglang", "m")))]
    paths = {**plain({}), "/v1/models": listed}
    async with ScriptedUpstream(chat_stream(), plain=paths) as u, probing(u.url, "vllm") as endpoint:
        await eventually(lambda: endpoint.adapter.name == "sglang")
        endpoint.own.slowest = Slowest(0.1, 10.0)
        listed[:] = [wire(http(cards("vllm", "m")))]
        asked = len(u.probes)
        await eventually(lambda: len(u.probes) > asked + 3)
        assert (endpoint.adapter.name, endpoint.own.slowest) == ("sglang", Slowest(0.1, 10.0))
        sign(Pool(PoolConfig(name="m", endpoints=(endpoint.config,))), endpoint)
        await eventually(lambda: endpoint.adapter.name == "vllm")
        assert endpoint.own.slowest is None


async def test_the_credential_goes_with_the_questions_and_a_versioned_path_is_kept() -> None:
    listed = {"/api/v3/models": http(cards("vllm", "m")), "/api/v3/version": http({"version": "0.33.0"})}
    async with ScriptedUpstream(chat_stream(), plain=plain(listed)) as u:
        async with probing(f"{u.url}/api/v3", "auto", api_key="k", headers={"x-tenant": "t"}) as endpoint:
            await eventually(lambda: endpoint.engine_version == "0.33.0")
        asked = [probe for probe in u.probes if probe.target == "/api/v3/models"]
        assert asked[0].header("authorization") == b"Bearer k"
        assert asked[0].header("x-tenant") == b"t"


async def test_a_wrong_engine_is_served_and_listed_as_what_it_is() -> None:
    async with engine("vllm") as u, running_gateway(config(u.url, engine="llamacpp")) as gw:
        await eventually(lambda: any(probe.target == "/version" for probe in u.probes))
        listed = (await gw.get("/weir/endpoints")).json()
        while listed[0]["engine"] == "llamacpp":
            listed = (await gw.get("/weir/endpoints")).json()
        assert (listed[0]["engine"], listed[0]["engine_version"]) == ("vllm", "0.32.0")
        await gw.post(r0(stream=False))
        assert not u.last.asked_for_stream, "llama.cpp would have been asked for a stream"
        assert gw.logs.text.count("correct its engine") == 1


async def test_a_model_that_an_engine_does_not_have_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    health: list[Step] = [wire(http(b""))]
    listed: list[Step] = [wire(http(cards("vllm", "org/a", "b")))]
    paths = {**plain(ENGINES["vllm"][0]), "/health": health, "/v1/models": listed}
    async with ScriptedUpstream(chat_stream(), plain=paths) as u, probing(u.url, "auto") as endpoint:
        await eventually(lambda: endpoint.recognised)
        health[:] = [wire(http(b"", status="503 Service Unavailable"))]
        await eventually(lambda: not endpoint.recognised)
        health[:] = [wire(http(b""))]
        await eventually(lambda: endpoint.recognised)
    told = [record.getMessage() for record in caplog.records if "has no model" in record.getMessage()]
    assert told == ['endpoint m-0: vllm has no model "m" and refuses every request for it; it has org/a, b']
