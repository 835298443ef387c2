"""A real Prometheus reads what Weir tells: numbers, exemplars, and an alert that somebody gets to know of."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from gateway.instruments.exposition import OPENMETRICS, TEXT, Format
from tests.fakes.gateway import config, running_gateway
from tests.fakes.otlp_sink import otlp_sink
from tests.fakes.raw_client import connect, r0, request_bytes
from tests.fakes.scripted import ScriptedUpstream, chat_stream, json_answer, unused_port
from tests.fakes.weir_process import weir
from tests.prometheus.real_prometheus import (
    exemplars,
    needs_prometheus,
    promtool,
    running_alertmanager,
    seen,
    watching,
    webhook,
)

pytestmark = needs_prometheus

TTFT = "weir_time_to_first_token_seconds"


@pytest.fixture
def traces() -> Generator[dict[str, Any]]:
    """Keeps every trace: what a configuration says for that."""
    with otlp_sink() as sink:
        yield {"otlp_endpoint": sink.url, "sample_ratio": 1}


async def test_it_stores_what_is_told_with_the_exemplars(traces: dict[str, Any], tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(chat_stream()) as u,
        running_gateway(config(u.url, telemetry=traces)) as gw,
        watching(tmp_path, gw.port) as prometheus,
    ):
        assert (await gw.post(r0())).done
        scrape = await gw.outcome("ok")
        [kept] = await gw.logs.access(1)
        assert await seen(prometheus, 'sum(weir_requests_total{outcome="ok"})', lambda v: v == 1)
        await seen(prometheus, f"sum({TTFT}_count)", lambda v: v == 1)
        [sums] = await prometheus.instant(f"{TTFT}_sum")
        assert [value for _, value in sums.points] == scrape.values(f"{TTFT}_sum")
        assert await seen(prometheus, f'{TTFT}_bucket{{le="+Inf"}}', lambda v: v == 1)
        assert len(await prometheus.instant(f'{TTFT}_bucket{{le="1.0"}}')) == 1, "an SLO's edge is found by its name"
        for family in (
            TTFT,
            "weir_longest_token_gap_seconds",
            "weir_request_duration_seconds",
            "weir_endpoint_time_to_first_token_seconds",
        ):
            (stored,) = await exemplars(prometheus, f"{family}_bucket", 1)
            assert stored["labels"] == {"trace_id": kept["trace_id"]}
        await seen(prometheus, "up", lambda v: v == 1)


async def test_it_scrapes_any_of_several_workers(tmp_path: Path) -> None:
    port = unused_port()
    path = tmp_path / "weir.yaml"
    async with ScriptedUpstream(chat_stream()) as u:
        path.write_text(config(u.url, listen=f"127.0.0.1:{port}"))
        async with weir("serve", "-c", str(path), "--workers", "2") as process:
            await process.says("with 2 workers")
            async with watching(tmp_path, port) as prometheus:
                for _ in range(10):
                    async with connect(port) as client:
                        await client.send(request_bytes("POST", "/v1/chat/completions", r0()))
                        assert (await client.reply()).done
                await seen(prometheus, 'sum(weir_requests_total{outcome="ok"})', lambda v: v == 10)
                await seen(prometheus, "weir_workers", lambda v: v == 2)
                assert len(await prometheus.instant("process_cpu_seconds_total")) == 2
            process.signal()
            assert await process.ended() == 0


RULES = json.dumps(
    {
        "groups": [
            {
                "name": "weir",
                "rules": [
                    {
                        "alert": "EngineFails",
                        "expr": 'sum by (model) (rate(weir_requests_total{outcome="upstream_error"}[20s])) > 0',
                        "labels": {"severity": "page"},
                    }
                ],
            }
        ]
    }
)


async def test_an_alert_reaches_whoever_is_to_know(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(json_answer({"error": {"message": "engine trouble"}}, 500)) as u,
        running_gateway(config(u.url, pool_options={"retries": {"attempts": 1}})) as gw,
        webhook() as hook,
        running_alertmanager(tmp_path, hook.url) as alertmanager,
        watching(tmp_path, gw.port, rules=RULES, alertmanager_url=alertmanager) as prometheus,
    ):
        for count in (1.0, 2.0):  # a rate needs a rise between two scrapes
            assert (await gw.post(r0())).status == 500
            await seen(prometheus, 'sum(weir_requests_total{outcome="upstream_error"})', count.__eq__)
        alert = await hook.next()
        assert alert["status"] == "firing"
        assert alert["labels"] == {"alertname": "EngineFails", "model": "m", "severity": "page"}


@pytest.mark.parametrize("genai", [False, True])
async def test_promtool_has_nothing_to_say(genai: bool) -> None:
    async with (
        ScriptedUpstream(chat_stream()) as u,
        running_gateway(config(u.url, metrics={"genai_names": genai})) as gw,
    ):
        assert (await gw.post(r0())).done
        await gw.outcome("ok")
        text = (await gw.get("/metrics")).body
    assert (b"gen_ai_server" in text) is genai
    status, said = await promtool("check", "metrics", stdin=text)
    # That its name does not end in its unit is the conventions' choice
    said = "\n".join(line for line in said.splitlines() if "gen_ai_" not in line)
    assert (status if not genai else 0, said) == (0, "")


@pytest.mark.parametrize("format", [TEXT, OPENMETRICS])
async def test_either_form_is_stored(format: Format, tmp_path: Path) -> None:
    """As its own parsers read it: what they refuse, they refuse with the whole scrape."""
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        reply = await gw.get("/metrics", [("accept", format.content_type)])
    assert reply.header("content-type") == format.content_type
    path = tmp_path / "told.txt"
    path.write_bytes(reply.body if format.openmetrics else reply.body + b"# EOF\n")
    if format.openmetrics:  # promtool makes blocks of this form only, and wants times
        stamped = b"\n".join(
            line if line.startswith(b"#") or not line else line + b" 1700000000" for line in reply.body.split(b"\n")
        )
        path.write_bytes(stamped)
        status, said = await promtool("tsdb", "create-blocks-from", "openmetrics", str(path), str(tmp_path / "blocks"))
        assert status == 0, said
    else:
        assert await promtool("check", "metrics", stdin=reply.body) == (0, "")
