"""``python -m bench.routing run|table``; see README.md."""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import Any

from .policies import ABLATIONS, POLICIES, Factory
from .referee import Measures, Result, middle, run
from .workload import SCENARIOS

COLUMNS = "ttft50 ttft90 ttft99 tpot50 tpot99 goodput good/s cached spread lost"


def attribute_of(where: str) -> Any:
    path, _, attribute = where.partition(":")
    return getattr(importlib.import_module(path), attribute)


def factory_of(name: str, module: str | None = None) -> Factory:
    if module:
        factory: Factory = attribute_of(module)
        return factory
    return POLICIES.get(name) or ABLATIONS[name]


def row(m: Measures) -> str:
    return (
        f"{m.ttft_p50_s:7.3f} {m.ttft_p90_s:7.3f} {m.ttft_p99_s:7.2f} "
        f"{1e3 * m.tpot_p50_s:6.1f} {1e3 * m.tpot_p99_s:6.1f} "
        f"{100 * m.goodput:6.1f}% {m.goodput_rps:6.2f} {100 * m.cached:5.1f}% {m.spread_s:6.2f} {100 * m.lost:5.2f}%"
    )


Job = tuple[str, str, float, int, float | None, str | None, float]


def work(job: Job) -> tuple[Job, Result, float]:
    scenario, policy, load, seed, minutes, module, scrape_s = job
    began = time.process_time()
    result = run(SCENARIOS[scenario], factory_of(policy, module), load, seed, minutes=minutes, scrape_s=scrape_s)
    return job, result, time.process_time() - began


def run_all(jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, Result, float]]:
    if workers == 1:
        yield from map(work, jobs)
    else:
        with ProcessPoolExecutor(workers) as pool:
            yield from pool.map(work, jobs, chunksize=max(1, min(8, len(jobs) // (4 * workers))))


def table(arguments: argparse.Namespace) -> None:
    scenarios = arguments.scenario.split(",") if arguments.scenario else list(SCENARIOS)
    policies = arguments.policy.split(",") if arguments.policy else list(POLICIES)
    if arguments.ablations:
        policies += list(ABLATIONS)
    loads, seeds = [float(x) for x in arguments.load.split(",")], range(1, arguments.seeds + 1)
    jobs = [
        (s, p, load, seed, arguments.minutes, arguments.policy_module, arguments.scrape)
        for s in scenarios
        for load in loads
        for p in policies
        for seed in seeds
    ]
    groups: dict[tuple[str, float, str], list[Result]] = {}
    with open(arguments.json, "a") if arguments.json else sys.stderr as file:
        for job, result, cpu_s in run_all(jobs, arguments.workers):
            groups.setdefault((job[0], job[2], job[1]), []).append(result)
            if arguments.json:
                line: dict[str, Any] = {
                    "scenario": job[0],
                    "policy": job[1],
                    "load": job[2],
                    "seed": job[3],
                    "cpu_s": cpu_s,
                    **asdict(result),
                }
                file.write(json.dumps(line) + "\n")
                file.flush()
    for scenario in scenarios:
        for load in loads:
            title = f"{scenario} ({SCENARIOS[scenario].title}), load {load:.0%}, median of {len(seeds)} seeds"
            print(f"\n{title}\n{'':16s} part {COLUMNS}")
            for policy in policies:
                results = groups[scenario, load, policy]
                print(f"{policy:16s} tune {row(middle([r.tune for r in results]))}")
                print(f"{'':16s} held {row(middle([r.held_out for r in results]))}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.routing")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "table"):
        command = commands.add_parser(name)
        command.add_argument("--scenario", default=None if name == "table" else "S1")
        command.add_argument("--policy", default=None if name == "table" else "predicted")
        command.add_argument("--policy-module", help="path.to:factory; factory(engines) returns a policy")
        command.add_argument("--load", default="0.6,0.85,1.05" if name == "table" else "0.85")
        command.add_argument("--minutes", type=float, help="keep only so many minutes of either part of the trace")
        command.add_argument("--scrape", type=float, default=2.0, help="seconds between scrapes of engine gauges")
        command.add_argument("--json", help="append one line a run to this file")
    commands.choices["run"].add_argument("--seed", type=int, default=1)
    commands.choices["table"].add_argument("--seeds", type=int, default=3)
    commands.choices["table"].add_argument("--workers", type=int, default=1)
    commands.choices["table"].add_argument("--ablations", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "run":
        job = (
            arguments.scenario,
            arguments.policy,
            float(arguments.load),
            arguments.seed,
            arguments.minutes,
            arguments.policy_module,
            arguments.scrape,
        )
        _, result, cpu_s = work(job)
        print(f"{'':5s}{COLUMNS}\ntune {row(result.tune)}\nheld {row(result.held_out)}")
        counts = f"{result.tune.requests} + {result.held_out.requests} requests"
        print(f"{counts}, {result.preemptions} pre-emptions, {cpu_s:.1f} s of CPU")
    else:
        table(arguments)


if __name__ == "__main__":
    main()
