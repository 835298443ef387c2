"""An engine is asked for its slots once and for its models again and again; what is missing is named and counted."""

from __future__ import annotations

import json

import pytest

from adapters.types import EngineTimings
from gateway.endpoint import ASSUMED_LOAD_S, COLD_LOAD_S
from tests.fakes.gateway import config, running_gateway
from tests.fakes.named_engines import ENGINES, http, plain
from tests.fakes.probing import probing
from tests.fakes.script import Script, Step, wire
from tests.fakes.scripted import Request, ScriptedUpstream, chat_stream, end, eventually

BROKEN: Script = [wire(http(b"", status="500 Internal Server Error")), end()]


@pytest.fixture(autouse=True)
def short_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine makes every engine a slow one."""
    monkeypatch.setattr("gateway.probing.engine_facts.REST", 1)
    monkeypatch.setattr("gateway.probing.engine_loads.REST", 1)


def scripted(name: str, **scripts: Script) -> ScriptedUpstream:
    """An engine as it is in life; keyword arguments are the scripts of paths, with __ for /."""
    said = plain(ENGINES[name][0]) | {"/health": [wire(http(b"")), end()]}
    said |= {"/" + path.replace("__", "/"): script for path, script in scripts.items()}
    return ScriptedUpstream(chat_stream(), plain=said)


def holding(*names: str) -> list[Step]:
    return [wire(http({"models": [{"name": name, "model": name} for name in names]})), end()]


def asked(upstream: ScriptedUpstream, path: str) -> list[Request]:
    return [probe for probe in upstream.probes if probe.target.partition("?")[0] == path]


async def probed(upstream: ScriptedUpstream, path: str, times: int = 2) -> None:
    """Waits until the engine has been asked so many times more, and once again, so that the answers have been read."""
    before = len(asked(upstream, path))
    await eventually(lambda: len(asked(upstream, path)) > before + times)


# --- slots


async def test_slots_are_asked_for_once() -> None:
    info = [wire(http({"version": "1", "running_max_req_size": 7})), end()]
    async with scripted("lightllm", get_server_info=info) as u, probing(u.url, "lightllm") as endpoint:
        await eventually(lambda: endpoint.snapshot().slots == 7)
        await probed(u, "/token_load", 5)
        assert len(asked(u, "/get_server_info")) == 1
        assert "slots" not in endpoint.missing.now
        assert (endpoint.facts.age_s or -1) >= 0


async def test_slots_are_asked_for_until_they_are_told() -> None:
    info: list[Step] = list(BROKEN)
    async with scripted("lightllm", get_server_info=info) as u, probing(u.url, "lightllm") as endpoint:
        await eventually(lambda: endpoint.missing.counts["slots"] >= 2)
        assert "slots" in endpoint.missing.now
        assert endpoint.snapshot().slots is None
        info[:] = [wire(http({"running_max_req_size": 7})), end()]
        await eventually(lambda: endpoint.snapshot().slots == 7)
        await eventually(lambda: "slots" not in endpoint.missing.now)


# --- the models that it holds


async def test_a_model_that_is_not_loaded_costs_what_loading_it_has_cost() -> None:
    listed = holding()
    async with scripted("ollama", api__ps=listed) as u, probing(u.url, "ollama", model="qwen3:0.6b") as endpoint:
        assert endpoint.snapshot().load_penalty_s == 0, "nothing is known"
        await eventually(lambda: endpoint.model_loaded is False)
        assert endpoint.snapshot().load_penalty_s == ASSUMED_LOAD_S
        endpoint.answered(EngineTimings(load_s=COLD_LOAD_S / 2))
        assert endpoint.snapshot().load_penalty_s == ASSUMED_LOAD_S, "that was no load"
        endpoint.answered(EngineTimings(load_s=8.0))
        assert endpoint.snapshot().load_penalty_s == 8.0
        endpoint.answered(EngineTimings(load_s=4.0))
        assert endpoint.snapshot().load_penalty_s == 6.0
        listed[:] = holding("llama3:8b", "qwen3:0.6b")
        await eventually(lambda: endpoint.model_loaded is True)
        assert endpoint.snapshot().load_penalty_s == 0
        listed[:] = holding("llama3:8b")
        await eventually(lambda: endpoint.snapshot().load_penalty_s == 6.0)


async def test_when_a_model_was_last_not_in_memory_is_remembered() -> None:
    listed = holding("m:latest")
    async with scripted("ollama", api__ps=listed) as u, probing(u.url, "ollama") as endpoint:
        await eventually(lambda: endpoint.model_loaded is True)
        assert endpoint.loads_since_s == 0
        listed[:] = holding()
        await eventually(lambda: (endpoint.loads_since_s or 0) > 0)
        listed[:] = holding("m:latest")
        await eventually(lambda: endpoint.model_loaded is True)
        assert (endpoint.loads_since_s or 0) > 0
    async with scripted("llamacpp") as u, probing(u.url, "llamacpp") as endpoint:
        assert endpoint.loads_since_s is None


async def test_what_is_not_answered_any_more_is_not_known_any_more() -> None:
    listed = holding()
    async with scripted("ollama", api__ps=listed) as u, probing(u.url, "ollama") as endpoint:
        await eventually(lambda: endpoint.model_loaded is False)
        listed[:] = BROKEN
        await eventually(lambda: endpoint.model_loaded is None)
        assert endpoint.snapshot().load_penalty_s == 0
        await eventually(lambda: endpoint.missing.now == {"model_loaded"})
        assert endpoint.facts.age_s is None


async def test_an_answer_that_waited_for_its_model_teaches_what_that_costs() -> None:
    last: dict[str, object] = {
        "model": "m",
        "created_at": "2026-08-21T10:00:00Z",
        "message": {"role": "assistant", "content": "a"},
    }
    last |= {"done": True, "done_reason": "stop", "total_duration": 3_100_000_000, "load_duration": 3_000_000_000}
    last |= {"prompt_eval_count": 3, "eval_count": 1}
    line = http(json.dumps(last).encode() + b"\n", kind="application/x-ndjson")
    said = plain(ENGINES["ollama"][0]) | {"/api/ps": holding()}
    async with (
        ScriptedUpstream([wire(line), end()], plain=said) as u,
        running_gateway(config(u.url, engine="ollama", pool_options={"health": {"interval": "10ms"}})) as gw,
    ):
        reply = await gw.post({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
        assert reply.status == 200
        found = (await gw.get("/weir/endpoints")).json()[0]
        while found["model_loaded"] is None:
            found = (await gw.get("/weir/endpoints")).json()[0]
        assert (found["model_loaded"], found["load_penalty_s"]) == (False, 3.0)
        assert found["facts_age_s"] >= 0
        assert found["missing_signals"] == []


# --- what is missing


async def test_a_missing_signal_is_named_and_counted() -> None:
    async with (
        scripted("lightllm", get_server_info=BROKEN) as u,
        running_gateway(config(u.url, engine="lightllm", pool_options={"health": {"interval": "10ms"}})) as gw,
    ):
        scrape = await gw.settled(lambda m: m.total("weir_engine_signal_missing_total", signal="waiting") >= 2)
        counted = {
            labels["signal"]
            for name, labels, count in scrape.samples
            if name == "weir_engine_signal_missing_total" and count
        }
        assert counted == {"running", "waiting", "slots"}
        found = (await gw.get("/weir/endpoints")).json()[0]
        assert found["missing_signals"] == ["running", "slots", "waiting"]
        assert (found["running"], found["waiting"], found["slots"]) == (None, None, None)
        assert found["kv_usage_ratio"] is not None


async def test_what_an_engine_never_tells_is_not_missing() -> None:
    metrics = [wire(http(b"vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n")), end()]
    async with scripted("vllm", metrics=metrics) as u, probing(u.url, "vllm") as endpoint:
        await eventually(lambda: endpoint.missing.now == {"kv_usage_ratio"})
    async with scripted("openai") as u, probing(u.url, "openai") as endpoint:
        await probed(u, endpoint.adapter.health_path, 5)
        assert (endpoint.recognised, set(endpoint.missing.counts.values())) == (True, {0})
