"""A Prometheus on this machine, for as long as somebody wants to ask it: for the tests, and for the pictures."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx2

Targets: TypeAlias = Mapping[str, Sequence[tuple[str, Mapping[str, str]]]]
"""HOST:PORT and the labels of its series, by job."""

PROMETHEUS = shutil.which("prometheus")
MISSING = "prometheus is missing; on Debian: apt-get install prometheus prometheus-alertmanager"
START_S = 30.0
STOP_S = 30.0
_LISTENS = re.compile(rb'msg="Listening on" address=127\.0\.0\.1:(\d+)')


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer.

    Attributes:
        labels: Of the series.
        points: Unix seconds and value, in order.
    """

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


class QueryRefused(Exception):
    """Prometheus did not take the query; the text is its own."""


class LocalPrometheus:
    """One that runs."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def instant(self, expr: str) -> list[Series]:
        """Returns what the query gives now.

        Raises:
            QueryRefused: If Prometheus does not take it.
        """
        found = await self._ask("query", {"query": expr})
        return [Series(one["metric"], [_point(one["value"])]) for one in _vector(found)]

    async def over(self, expr: str, begin_unix_s: float, end_unix_s: float, step_s: float) -> list[Series]:
        """Returns what the query gives over a time.

        Raises:
            QueryRefused: If Prometheus does not take it.
        """
        span = {"start": str(begin_unix_s), "end": str(end_unix_s), "step": str(step_s)}
        found = await self._ask("query_range", {"query": expr, **span})
        return [Series(one["metric"], [_point(point) for point in one["values"]]) for one in found["result"]]

    async def exemplars(self, selector: str) -> list[Any]:
        """Returns the exemplars that are stored of the selected series: labels, value and time of each."""
        found = await self._ask("query_exemplars", {"query": selector, "start": "0", "end": "9999999999"})
        return [exemplar for series in found for exemplar in series["exemplars"]]

    async def rule_health(self) -> Mapping[str, str]:
        """Returns by name whether its last run went well: ``ok``, ``err: ...``, or ``unknown`` before the first."""
        groups = (await self._http.get("/api/v1/rules")).json()["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return {
            rule["name"]: f"{rule['health']}: {rule['lastError']}" if rule.get("lastError") else rule["health"]
            for rule in rules
        }

    async def _ask(self, path: str, fields: Mapping[str, str]) -> Any:
        answer = (await self._http.post(f"/api/v1/{path}", data=dict(fields))).json()
        if answer["status"] != "success":
            raise QueryRefused(f"{answer['error']}: {fields['query']}")
        return answer["data"]


@asynccontextmanager
async def running_prometheus(
    folder: Path,
    targets: Targets,
    interval_s: float,
    rules: Sequence[Path] = (),
    alertmanagers: Sequence[str] = (),
) -> AsyncGenerator[LocalPrometheus]:
    """Starts one that scrapes; stops it on the way out.

    Args:
        folder: An empty one, for its configuration and its data.
        targets: What it scrapes.
        interval_s: Between two scrapes, and between two runs of the rules.
        rules: Files of rules.
        alertmanagers: HOST:PORT of those that are told of alerts.
    """
    assert PROMETHEUS is not None, MISSING
    config = folder / "prometheus.yaml"
    config.write_text(json.dumps(_config(targets, interval_s, rules, alertmanagers)))  # JSON is YAML
    process = await asyncio.create_subprocess_exec(
        PROMETHEUS,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
        "--enable-feature=exemplar-storage",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    said = bytearray()
    reading = asyncio.create_task(_keep(process.stderr, said))
    try:
        async with asyncio.timeout(START_S):
            while (found := _LISTENS.search(said)) is None:
                assert process.returncode is None, said.decode()
                await asyncio.sleep(0.01)
        url = f"http://127.0.0.1:{found[1].decode()}"
        # It speaks plain HTTP; to load certificates takes longer than all else here.
        async with httpx2.AsyncClient(base_url=url, timeout=START_S, verify=False, trust_env=False) as http:
            async with asyncio.timeout(START_S):
                while (await http.get("/-/ready")).status_code != 200:  # noqa: ASYNC110 - it is another process
                    await asyncio.sleep(0.01)
            yield LocalPrometheus(http)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await reading


def _config(
    targets: Targets, interval_s: float, rules: Sequence[Path], alertmanagers: Sequence[str]
) -> Mapping[str, object]:
    interval = f"{round(interval_s * 1000)}ms"
    jobs = [
        {
            "job_name": job,
            "static_configs": [{"targets": [address], "labels": dict(labels)} for address, labels in addresses],
        }
        for job, addresses in targets.items()
    ]
    times = {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval}
    return {
        "global": times,
        "scrape_configs": jobs,
        "rule_files": [str(path) for path in rules],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": list(alertmanagers)}]}]},
    }


async def _keep(stream: asyncio.StreamReader, said: bytearray) -> None:
    while data := await stream.read(65_536):
        said += data


def _vector(found: Any) -> list[Any]:
    if found["resultType"] == "scalar":
        return [{"metric": {}, "value": found["result"]}]
    return list(found["result"])


def _point(point: Any) -> tuple[float, float]:
    unix_s, value = point
    return float(unix_s), float(value)
