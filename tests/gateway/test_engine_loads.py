"""An engine is asked for its load beside the probes: what it says is listed with its age, the rest is unknown."""

from __future__ import annotations

import math
from typing import Any

import pytest

from adapters.engine_load import UNKNOWN, EngineLoad, LoadSource, load_sources
from gateway.probing.engine_loads import ANSWER_BYTES, REST
from tests.fakes.dialects.answer import Load
from tests.fakes.dialects.registry import DIALECTS
from tests.fakes.dialects.serving import serving
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.named_engines import cards, http, plain
from tests.fakes.probing import probing
from tests.fakes.script import Script, Step, hang, raw, rst, wire
from tests.fakes.scripted import NOT_FOUND, Request, ScriptedUpstream, chat_stream, end, eventually, head

FIGURES = ("running", "waiting", "kv_usage_ratio")
GAUGES = tuple(f"weir_engine_{figure}" for figure in FIGURES)
AGE = "weir_engine_sample_age_seconds"
HEALTHY: Step = wire(http(b""))
SICK: Step = wire(http(b"", status="503 Service Unavailable"))


@pytest.fixture(autouse=True)
def short_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine makes every engine a slow one."""
    monkeypatch.setattr("gateway.probing.engine_loads.REST", 1)


def vllm_metrics(running: int) -> list[Step]:
    return [wire(http(b"vllm:num_requests_running %d\n" % running, kind="text/plain"))]


def scripted(owner: str, **scripts: Script) -> ScriptedUpstream:
    """An engine of that name; keyword arguments are the scripts of paths, with __ for /."""
    said = plain({"/v1/models": http(cards(owner, "m"))})
    said |= {"/health": [HEALTHY], "/ready": [HEALTHY], "/version": [wire(http({"version": "1"}))]}
    return ScriptedUpstream(
        chat_stream(), plain={**said, **{"/" + path.replace("__", "/"): script for path, script in scripts.items()}}
    )


def asked(upstream: ScriptedUpstream, path: str) -> list[Request]:
    return [probe for probe in upstream.probes if probe.target.partition("?")[0] == path]


async def told(upstream: ScriptedUpstream, path: str, times: int) -> None:
    """Waits until the path has been asked so many times more, and once again, so that the answers have been read."""
    before = len(asked(upstream, path))
    await eventually(lambda: len(asked(upstream, path)) > before + times)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "weir.engine_loads"]


async def listed(gateway: RunningGateway) -> dict[str, Any]:
    found: dict[str, Any] = (await gateway.get("/weir/endpoints")).json()[0]
    return found


# --- what is seen of it


@pytest.mark.parametrize("name", sorted(DIALECTS))
async def test_each_engines_own_figures_are_listed_and_measured(name: str) -> None:
    tells = {figure for source in load_sources(name) for figure in source.tells}
    if name == "llamacpp":
        tells.remove("kv_usage_ratio")  # only old ones do
    load = {"running": 3, "waiting": 2, "kv_usage_ratio": 0.25}
    expected = [value if figure in tells else None for figure, value in load.items()]
    async with (
        serving(DIALECTS[name](load=Load(running=3, waiting=2, kv_usage_ratio=0.25))) as engine,
        running_gateway(config(engine.endpoint, pool_options={"health": {"interval": "10ms"}})) as gw,
    ):
        await eventually(lambda: len(engine.probes) > 10)
        found = await listed(gw)
        while tells and found["running"] is None:
            found = await listed(gw)
        assert [found[figure] for figure in FIGURES] == expected
        measured = await gw.metrics()
        for gauge, value in zip(GAUGES, expected, strict=True):
            sample = measured.values(gauge, endpoint="m-0")
            assert sample == [value] if value is not None else [math.isnan(v) for v in sample] == [True]
        ages = [found["sample_age_s"], *measured.values(AGE, endpoint="m-0")]
        if tells:
            assert all(age >= 0 for age in ages)
        else:
            assert (ages[0], math.isnan(ages[1])) == (None, True)


async def test_an_endpoint_that_never_answered_has_no_load() -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        found = await listed(gw)
        assert [found[key] for key in (*FIGURES, "sample_age_s")] == [None] * 4
        measured = await gw.metrics()
        for gauge in (*GAUGES, AGE):
            assert [(labels, math.isnan(v)) for name, labels, v in measured.samples if name == gauge] == [
                ({"endpoint": "m-0"}, True)
            ]


# --- samples


async def test_the_load_is_asked_for_again_and_again() -> None:
    metrics = vllm_metrics(1)
    async with scripted("vllm", metrics=metrics) as u, probing(u.url, "vllm") as endpoint:
        await eventually(lambda: endpoint.load.load.running == 1)
        metrics[:] = vllm_metrics(2)
        await eventually(lambda: endpoint.load.load.running == 2)


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        ([wire(http(b"", status="500 Internal Server Error"))], "status 500"),
        ([wire(http(b"", status="401 Unauthorized"))], "status 401"),
        ([wire(http(b"vllm:num_requests_running many\n"))], "no number"),
        ([head(200, "text"), raw(b"a" * (ANSWER_BYTES + 1)), end()], str(ANSWER_BYTES)),
        ([wire(http(b"", "content-encoding: gzip"))], "compressed its answer"),
        ([rst()], "before it answered"),
        ([hang()], "within 0.5 s"),
    ],
)
async def test_a_failure_is_told_once_and_leaves_the_last_sample(
    failure: list[Step], cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    metrics, timeout = vllm_metrics(3), "500ms" if failure == [hang()] else "20s"
    async with scripted("vllm", metrics=metrics) as u, probing(u.url, "vllm", within=timeout) as endpoint:
        await eventually(lambda: endpoint.recognised and endpoint.load.load.running == 3)
        metrics[:] = failure
        await told(u, "/metrics", 1)
        sample = endpoint.load
        await told(u, "/metrics", 1)
        assert endpoint.load == sample
        assert sample.load == EngineLoad(running=3)
        assert endpoint.healthy
        age_s = sample.age_s
        assert age_s is not None
        await eventually(lambda: (endpoint.load.age_s or 0) > age_s)
        metrics[:] = vllm_metrics(4)
        await eventually(lambda: endpoint.load.load.running == 4)
    [(level, line)] = lines(caplog)
    assert level == "WARNING"
    assert all(word in line for word in ("m-0", "/metrics", cause))
    assert "many" not in line


async def test_metrics_without_the_figures_are_no_sample_and_no_zero(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    metrics = [wire(http(b"http_requests_total 5\n"))]
    async with scripted("vllm", metrics=metrics) as u, probing(u.url, "vllm") as endpoint:
        await told(u, "/metrics", 2)
        assert (endpoint.load.load, endpoint.load.age_s) == (UNKNOWN, None)
    assert [level for level, _ in lines(caplog)] == ["INFO"]


async def test_an_engine_that_tells_when_nothing_has_changed_is_asked_only_that() -> None:
    metrics: list[Step] = [wire(http(b"vllm:num_requests_running 3\n", 'etag: "one"', kind="text/plain"))]
    async with scripted("vllm", metrics=metrics) as u, probing(u.url, "vllm") as endpoint:
        await eventually(lambda: endpoint.load.load.running == 3)
        metrics[:] = [wire(http(b"", status="304 Not Modified"))]
        await told(u, "/metrics", 1)
        sample = endpoint.load
        assert (sample.load.running, asked(u, "/metrics")[-1].header("if-none-match")) == (3, b'"one"')
        await eventually(lambda: (endpoint.load.asked_s or 0) > (sample.asked_s or 0))
        metrics[:] = vllm_metrics(4)
        await eventually(lambda: endpoint.load.load.running == 4)
        await told(u, "/metrics", 1)
        assert asked(u, "/metrics")[-1].header("if-none-match") is None


# --- paths that an engine does not have


@pytest.mark.parametrize("status", ["404 Not Found", "405 Method Not Allowed", "501 Not Implemented"])
async def test_a_path_that_is_not_there_is_asked_again_when_the_engine_comes_back(
    status: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    health: list[Step] = [HEALTHY]
    metrics: list[Step] = [wire(http({"error": "off"}, status=status))]
    async with scripted("vllm", health=health, metrics=metrics) as u, probing(u.url, "vllm") as endpoint:
        await told(u, "/health", 5)
        assert len(asked(u, "/metrics")) == 1
        assert endpoint.healthy
        metrics[:] = vllm_metrics(1)
        health[:] = [SICK]
        await eventually(lambda: not endpoint.recognised)
        health[:] = [HEALTHY]
        await eventually(lambda: endpoint.load.load.running == 1)
    assert [level for level, _ in lines(caplog)] == ["INFO"]


async def test_a_llama_cpp_without_metrics_tells_by_its_slots_what_runs() -> None:
    off = [wire(http({"error": {"code": 501}}, status="501 Not Implemented"))]
    slots = [wire(http([{"id": 0, "is_processing": True}, {"id": 1, "is_processing": False}]))]
    async with scripted("llamacpp", metrics=off, slots=slots) as u, probing(u.url, "llamacpp") as endpoint:
        await eventually(lambda: endpoint.load.load == EngineLoad(running=1))
        await told(u, "/slots", 1)
        assert len(asked(u, "/metrics")) == 1


async def test_an_sglang_without_loads_tells_by_its_metrics() -> None:
    metrics = [wire(http(b"sglang:num_running_reqs 5\nsglang:num_queue_reqs 0\nsglang:token_usage 0.5\n"))]
    async with (
        scripted("sglang", v1__loads=NOT_FOUND, metrics=metrics) as u,
        probing(u.url, "sglang") as endpoint,
    ):
        await eventually(lambda: endpoint.load.load == EngineLoad(5, 0, 0.5))
        await told(u, "/metrics", 1)
        assert len(asked(u, "/v1/loads")) == 1


async def test_what_one_path_fails_to_tell_does_not_hide_what_another_told() -> None:
    metrics = [wire(http(b"lightllm_batch_current_size 2\nlightllm_queue_size 1\n"))]
    load: list[Step] = [wire(http(b"", status="500 Internal Server Error"))]
    async with (
        scripted("lightllm", metrics=metrics, token_load=load) as u,
        probing(u.url, "lightllm") as endpoint,
    ):
        await eventually(lambda: endpoint.load.load == EngineLoad(2, 1, None))
        load[:] = [wire(http({"current_load": 0.5, "dynamic_max_load": 0.75}))]
        await eventually(lambda: endpoint.load.load == EngineLoad(2, 1, 0.5))


# --- another engine, a slow one, and what nobody foresaw


async def test_another_engine_in_its_place_has_a_load_of_its_own() -> None:
    health, models = [HEALTHY], [wire(http(cards("vllm", "m")))]
    metrics = vllm_metrics(3)
    async with (
        scripted("vllm", health=health, v1__models=models, metrics=metrics) as u,
        probing(u.url, "vllm") as endpoint,
    ):
        await eventually(lambda: endpoint.load.load.running == 3)
        health[:] = [SICK]
        await eventually(lambda: not endpoint.recognised)
        assert endpoint.load.load.running == 3, "it may be the same one that comes back"
        models[:] = [wire(http(cards("tensorrt_llm", "m")))]
        health[:] = [HEALTHY]
        await eventually(lambda: endpoint.adapter.name == "trtllm")
        assert (endpoint.load.load, endpoint.load.age_s) == (UNKNOWN, None)


async def test_a_slow_engine_is_left_alone_for_a_while_and_probed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.probing.engine_loads.REST", REST)
    timeout_s = 0.2
    async with scripted("vllm", metrics=[hang()]) as u, probing(u.url, "vllm", within=f"{timeout_s}s") as endpoint:
        await eventually(lambda: len(asked(u, "/metrics")) == 2)
        first, second = asked(u, "/metrics")
        assert first.left.is_set()
        # The first may have arrived as late as the time-out
        assert second.arrived_s - first.arrived_s > (REST - 1) * timeout_s
        between = u.probes[u.probes.index(first) : u.probes.index(second)]
        assert sum(probe.target == "/health" for probe in between) > 1
        assert endpoint.healthy


async def test_a_fault_in_reading_a_load_ends_no_watch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    words = "what the engine said"

    def fails(body: bytes) -> EngineLoad:
        raise RecursionError(words)

    def sources(engine: str) -> tuple[LoadSource, ...]:
        return (LoadSource("/metrics", fails),)

    monkeypatch.setattr("gateway.probing.engine_loads.load_sources", sources)
    async with scripted("vllm", metrics=vllm_metrics(1)) as u, probing(u.url, "vllm") as endpoint:
        await told(u, "/metrics", 2)
        assert endpoint.healthy
        assert endpoint.load.load == UNKNOWN
    assert words not in caplog.text
    assert caplog.text.count("fault of Weir's: RecursionError") == 1
