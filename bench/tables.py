"""Figures of one scenario's rounds, and the markdown tables made of them."""

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from harness.bench import DIRECT
from harness.scenarios import SCENARIOS

Run = dict[str, Any]
Result = dict[str, Any]  # one scenario: what run.py saves as results/KEY.json


def median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def runs_of(result: Result, name: str) -> list[Run]:
    return [one[name] for one in result["rounds"] if name in one]


def pairs_of(result: Result, name: str, other: str) -> list[tuple[Run, Run]]:
    """The two targets' runs round by round, for ratios and differences within the same minutes."""
    return [(one[name], one[other]) for one in result["rounds"] if name in one and other in one]


def added_ms(result: Result, name: str, what: str, quantile: str) -> float | None:
    """Median over the rounds of this target's percentile minus the direct path's."""
    pairs = pairs_of(result, name, DIRECT)
    return median((run[what][quantile] - base[what][quantile]) / 1000 for run, base in pairs if run[what]["n"])


def stream_kb(result: Result, name: str) -> float | None:
    """Memory per open stream: peak RSS less the RSS of the same process just started, over the 2,000 streams of (e)."""
    growth_mb = median(run["rss_peak_mb"] - run["rss_start_mb"] for run in runs_of(result, name))
    return None if growth_mb is None else growth_mb * 1024 / 2000


def saw(run: Run) -> str:
    """What the clients saw in place of a whole answer, by kind."""
    return ", ".join(f"{count} {kind}" for kind, count in run["failures"].items() if count) or "nothing"


def figures(key: str, result: Result, name: str) -> dict[str, Any]:
    """The columns of one row. The direct path has no CPU time and no memory."""
    runs = runs_of(result, name)
    row = _BY_KIND[SCENARIOS[key].kind](key, result, name, runs)
    if SCENARIOS[key].kind != "cut":
        row["failed"] = sum(run["failed"] for run in runs)
    return row


def _rate(key: str, result: Result, name: str, runs: list[Run]) -> dict[str, Any]:
    cpu_us = median(run.get("cpu_us_per_request") for run in runs)
    row: dict[str, Any] = {"CPU us/request": cpu_us}
    if key == "c":
        row["CPU us/chunk"] = median(run.get("cpu_us_per_chunk") for run in runs)
    row["requests/s a core"] = 1e6 / cpu_us if cpu_us else None
    row["measured requests/s"] = median(run["rps"] for run in runs)
    row["CPU share"] = median(run.get("cpu_share") for run in runs)
    row["p50 ms"] = median(run["e2e_us"]["p50"] / 1000 for run in runs)
    row["p99 ms"] = median(run["e2e_us"]["p99"] / 1000 for run in runs)
    return row


def _paced(key: str, result: Result, name: str, runs: list[Run]) -> dict[str, Any]:
    cpu_us = median(run.get("cpu_us_per_chunk") for run in runs)
    row: dict[str, Any] = {"CPU us/chunk": cpu_us, "chunks/s a core": 1e6 / cpu_us if cpu_us else None}
    row["CPU share"] = median(run.get("cpu_share") for run in runs)
    for what, short in (("ttft_us", "TTFT"), ("itl_us", "ITL")):
        for quantile in ("p50", "p99"):
            absolute = median(run[what][quantile] / 1000 for run in runs)
            added = f"({number(absolute)})" if name == DIRECT else added_ms(result, name, what, quantile)
            row[f"added {short} {quantile} ms"] = added
    row["RSS peak MB"] = median(run.get("rss_peak_mb") for run in runs)
    if key == "e":
        row["kB a stream"] = None if name == DIRECT else stream_kb(result, name)
    return row


def _abort(key: str, result: Result, name: str, runs: list[Run]) -> dict[str, Any]:
    counts = runs[0]["abort"]
    return {
        "clients left": counts["left"],
        "requests at the engine": counts["reached"],
        "aborts seen": counts["seen"],
        "within 100 ms": counts["within_100_ms"],
        "never reached it": counts["never_reached"],
        "ran to the end": counts["ran_to_the_end"],
        "still running": counts["still_running"],
        "lag p50 ms": counts["lag_ms_p50"],
        "lag max ms": counts["lag_ms_max"],
        "most tokens made": counts["tokens_at_abort_max"],
    }


def _stall(key: str, result: Result, name: str, runs: list[Run]) -> dict[str, Any]:
    stall = runs[0]["stall"]
    return {
        "absorbed MB at 4 s": stall["absorbed_mb_4s"],
        "at 8 s": stall["absorbed_mb_8s"],
        "RSS growth MB": stall["rss_growth_mb"],
        "RSS 2 s after MB": stall["rss_after_mb"],
        "still running upstream": stall["running_after"],
    }


def _resume(key: str, result: Result, name: str, runs: list[Run]) -> dict[str, Any]:
    return {"whole": runs[0]["ok"], "of": runs[0]["started"], "elapsed s": round(runs[0]["elapsed_s"], 1)}


def _cut(key: str, result: Result, name: str, runs: list[Run]) -> dict[str, Any]:
    run = runs[0]
    return {"clients saw": saw(run), "of these with [DONE]": run["failed_with_done"], "looked whole": run["ok"]}


_BY_KIND: dict[str, Callable[[str, Result, str, list[Run]], dict[str, Any]]] = {
    "rate": _rate,
    "paced": _paced,
    "abort": _abort,
    "stall": _stall,
    "resume": _resume,
    "cut": _cut,
}


def number(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return str(value)


def markdown(header: list[str], rows: Iterable[Iterable[Any]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join("---" for _ in header) + " |"]
    return "\n".join(lines + ["| " + " | ".join(map(number, row)) + " |" for row in rows])


def scenario_table(key: str, result: Result) -> str:
    """One row a target: direct first, then by CPU time where it is measured, with its ratio to Weir's."""
    names = [name for name in [DIRECT, *result["targets"]] if runs_of(result, name)]
    rows = {name: figures(key, result, name) for name in names}
    columns = list(rows[names[0]])
    if not columns[0].startswith("CPU"):
        return markdown(["target", *columns], ([name, *rows[name].values()] for name in names))
    cost = columns[0]
    names.sort(key=lambda name: rows[name][cost] or 0)
    base = rows.get("weir", {}).get(cost)
    ratio = {name: rows[name][cost] / base if base and rows[name][cost] else None for name in names}
    return markdown(["target", "CPU / Weir's", *columns], ([name, ratio[name], *rows[name].values()] for name in names))


def calibration(result: Result) -> tuple[float, float, float]:
    """Lowest, median and highest of the calibration job's CPU time around the runs of this scenario, us."""
    values = [value for one in result["rounds"] for run in one.values() for value in run["calib_us"]]
    return min(values), statistics.median(values), max(values)
