"""Every query, asked of a real Prometheus that scrapes a gateway under traffic: all of them return something."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.local_prometheus import MISSING, PROMETHEUS, LocalPrometheus, running_prometheus
from tests.deploy.boards import Target, targets
from tests.deploy.contract import HISTOGRAMS, NUMBERS, labels_of
from tests.deploy.demo_traffic import demo
from tests.deploy.promql import VARIABLES, asked, filled

SCRAPE_S = 0.4
NOW: Mapping[str, str] = {**VARIABLES, "$__rate_interval": "4s", "$__range": "30s"}
RULES = sorted((Path(__file__).parents[2] / "deploy" / "prometheus" / "rules").glob("*.yaml"))
WITHIN_S = 100.0


@pytest.mark.prometheus
@pytest.mark.skipif(PROMETHEUS is None, reason=MISSING)
@pytest.mark.deadline(240)
async def test_every_query_returns_data(tmp_path: Path) -> None:
    async with demo() as running, running_prometheus(tmp_path, running.targets, SCRAPE_S) as prometheus:
        made = families((await running.gateway.metrics()).text)
        waiting = {target.name + target.expr: target for target in targets() if is_possible(target, made)}
        assert len(waiting) > 60
        until_s = asyncio.get_running_loop().time() + WITHIN_S
        while waiting:
            for key, target in list(waiting.items()):
                if await has_data(prometheus, target):
                    del waiting[key]
            missing = [f"{target.name}: {filled(target.expr, NOW)}" for target in waiting.values()]
            assert asyncio.get_running_loop().time() < until_s, "no data for\n" + "\n".join(missing)


@pytest.mark.prometheus
@pytest.mark.skipif(PROMETHEUS is None, reason=MISSING)
@pytest.mark.deadline(120)
async def test_every_rule_runs_on_real_series(tmp_path: Path) -> None:
    """What promtool cannot know: that labels of real series let the two sides of an expression be matched."""
    async with demo() as running, running_prometheus(tmp_path, running.targets, SCRAPE_S, RULES) as prometheus:
        while not await prometheus.instant("weir:ttft_bad:ratio_rate5m"):  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.1)
        while "unknown" in (health := await prometheus.rule_health()).values():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert len(health) > 30
    assert set(health.values()) == {"ok"}, health


def is_possible(target: Target, made: Collection[str]) -> bool:
    """Whether this gateway has all of Weir's families that are asked for."""
    names = {name for one in asked(filled(target.expr)).selected for name in one.names if name.startswith("weir_")}
    return {base_of(name) for name in names} <= set(made)


def base_of(name: str) -> str:
    """The family of a sample."""
    base = name
    for suffix in ("_bucket", "_sum", "_count"):
        base = base.removesuffix(suffix)
    return base if base in HISTOGRAMS else name


async def has_data(prometheus: LocalPrometheus, target: Target) -> bool:
    found = await prometheus.instant(filled(target.expr, NOW))
    return any(not math.isnan(value) for series in found for _, value in series.points)


def families(text: str) -> set[str]:
    """Weir's own, by the names that a sample has."""
    lines = [line.split() for line in text.splitlines() if line.startswith("# TYPE weir_")]
    return {name for _, _, name, _ in lines}


async def test_what_a_gateway_makes_is_called_what_the_contract_calls_it() -> None:
    async with demo() as running:
        scrape = await running.gateway.settled(lambda m: m.total("weir_retries_total") > 0 and _has_embedded(m.text))
    made = families(scrape.text)
    assert made <= {*HISTOGRAMS, *NUMBERS}
    for family in text_string_to_metric_families(scrape.text):
        for sample in family.samples:
            if base_of(sample.name) in made:
                promised = labels_of(sample.name)
                assert promised is not None, sample.name
                assert sample.labels.keys() == promised - {"job", "instance"}, sample.name


def _has_embedded(text: str) -> bool:
    return "weir_embeddings_batch_inputs_count" in text
