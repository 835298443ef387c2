"""The product's policy against what is asked of it: ``python -m bench.routing.bars runs.jsonl``.

The runs are those of ``table --json``; oracle and peers are the medians in ``baselines.csv``, made by the same referee.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

BASELINES = Path(__file__).with_name("baselines.csv")
PEERS = [
    "random",
    "round_robin",
    "weighted_rr",
    "least_in_flight",
    "weighted_least",
    "power_of_two",
    "peak_ewma",
    "kong_tpot",
    "cache_aware",
    "loadaware",
    "llm_d",
    "least_prefill",
]
LOADED = ("S1", "S3", "S4", "S5", "S6", "S7")
GOODPUT_S3 = {0.6: 0.95, 0.85: 0.94, 1.05: 0.93}

Key = tuple[str, float]
Figures = dict[str, float]


def baselines() -> dict[tuple[str, float, str], Figures]:
    with BASELINES.open() as file:
        return {
            (row["scenario"], float(row["load"]), row["policy"]): {
                name: float(row[name]) for name in ("ttft_p50_s", "ttft_p99_s", "goodput")
            }
            for row in csv.DictReader(file)
            if row["part"] == "held_out"
        }


def ours(paths: list[str]) -> dict[Key, Figures]:
    """Returns the medians over the seeds, of the held-out part."""
    runs: dict[Key, list[Figures]] = defaultdict(list)
    for path in paths:
        for line in Path(path).read_text().splitlines():
            run = json.loads(line)
            runs[run["scenario"], run["load"]].append(run["held_out"])
    return {
        key: {name: median(run[name] for run in found) for name in ("ttft_p50_s", "ttft_p99_s", "goodput")}
        for key, found in sorted(runs.items())
    }


def misses(key: Key, we: Figures, oracle: Figures, best: Figures) -> list[str]:
    scenario, load = key
    missed: list[str] = []
    p50, p99 = we["ttft_p50_s"] / oracle["ttft_p50_s"], we["ttft_p99_s"] / oracle["ttft_p99_s"]
    if load == 0.6 and p50 > 1.10:
        missed.append("p50")
    if (load == 0.6 or (load == 0.85 and scenario in LOADED)) and p99 > 1.10:
        missed.append("p99")
    if load == 0.85 and scenario in LOADED and we["ttft_p99_s"] >= best["ttft_p99_s"]:
        missed.append("p99 of a peer")
    if load < 1.0 and scenario in LOADED and we["goodput"] < oracle["goodput"] - 0.010:
        missed.append("goodput")
    if scenario == "S3" and we["goodput"] < max(GOODPUT_S3[load], best["goodput"] + 0.030):
        missed.append("goodput of S3")
    return missed


def main() -> None:
    table = baselines()
    print("| | TTFT p50, / oracle | TTFT p99, / oracle, best peer | goodput, oracle, best peer | missed |")
    print("| --- | --- | --- | --- | --- |")
    for (scenario, load), we in ours(sys.argv[1:]).items():
        oracle = table[scenario, load, "oracle"]
        peers = [table[scenario, load, peer] for peer in PEERS]
        best = {
            "ttft_p99_s": min(peer["ttft_p99_s"] for peer in peers),
            "goodput": max(peer["goodput"] for peer in peers),
        }
        missed = ", ".join(misses((scenario, load), we, oracle, best)) or "-"
        print(
            f"| {scenario}, {load:.0%} | {we['ttft_p50_s']:.3f}, {we['ttft_p50_s'] / oracle['ttft_p50_s']:.2f} "
            f"| {we['ttft_p99_s']:.3f}, {we['ttft_p99_s'] / oracle['ttft_p99_s']:.2f}, {best['ttft_p99_s']:.3f} "
            f"| {we['goodput']:.1%}, {oracle['goodput']:.1%}, {best['goodput']:.1%} | {missed} |"
        )


if __name__ == "__main__":
    main()
