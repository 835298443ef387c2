"""Benchmarks Weir beside its peers, all in one run, on this machine's loopback.

  bench/run.sh all                 every target and scenario; writes bench/RESULTS.md and bench/results/ (20 minutes)
  bench/run.sh quick               direct, weir, vllm-router on a, b, c, d, to the terminal only (under 3 minutes)
  bench/run.sh weir --only a,c     single targets and scenarios, to the terminal; a target is a name or a .json file
  bench/run.sh peers               installs the peers and stops
  bench/run.sh selftest            checks the load generator and the mock engine
  bench/run.sh report              writes bench/RESULTS.md again from bench/results/

`all --only d,e` measures these scenarios again and keeps the other results. docs/benchmarks.md tells how to read them.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bars import judge
from harness.bench import DIRECT, Bench, BenchError, Options, say
from harness.procfs import renice
from harness.scenarios import SCENARIOS
from install import PeerMissing, ensure
from machine import REPO, machine, target_version
from report import bars_table, results_page, scenario
from tables import Result

HERE = Path(__file__).resolve().parent
ALL = ("weir", "nginx", "envoy", "vllm-router", "litellm")
QUICK = ("weir", "vllm-router")
RESULTS = HERE / "results"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench/run.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="+", help="all, quick, peers, selftest, report, or targets: " + ", ".join(ALL))
    parser.add_argument("--only", default="", help="scenario letters with commas: " + ",".join(SCENARIOS))
    parser.add_argument("--rounds", type=int, help="rounds of a, b, c, l, d, e (3; quick 2); the tables give medians")
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--out", type=Path, help="folder for the results and RESULTS.md of single targets")
    parser.add_argument("--weir", type=Path, help="folder of the weir command (.venv-bench/bin, or $WEIR_BENCH_BIN)")
    parser.add_argument("--base-port", type=int, default=9100, help="mocks at +1 and +2, targets from +50 (9100)")
    parser.add_argument("--nice", type=int, default=0, help="niceness of all that is measured; below 0 needs root")
    parser.add_argument("--keep", action="store_true", help="keep the working folders with configurations and logs")
    return parser.parse_args()


def load_target(name: str) -> dict[str, Any]:
    path = Path(name) if name.endswith(".json") else HERE / "targets" / f"{name}.json"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in (HERE / "targets").glob("*.json")))
        raise BenchError(f"no target {name}: there are {known}; or name a .json file")
    target: dict[str, Any] = json.loads(path.read_text())
    return target


def scenario_keys(only: str, default: str) -> list[str]:
    keys = [key.strip() for key in only.split(",") if key.strip()] or list(default)
    unknown = [key for key in keys if key not in SCENARIOS]
    if unknown:
        raise BenchError(f"no scenario {', '.join(unknown)}: there are {', '.join(SCENARIOS)}")
    return [key for key in SCENARIOS if key in keys]


def build() -> None:
    for tool in ("make", "gcc", "taskset"):
        if not shutil.which(tool):
            raise BenchError(f"{tool} is missing: install it (Debian: apt-get install make gcc util-linux)")
    if subprocess.run(["make", "-s", "-C", str(HERE / "harness")]).returncode:
        raise BenchError("the C programs in bench/harness could not be built: see above")


def peers_home() -> Path:
    return Path(os.environ.get("WEIR_BENCH_PEERS") or HERE / ".peers").resolve()


def available(names: list[str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The targets that can run here, and why the others cannot; peers are installed on the way."""
    targets, missing = [], {}
    for name in names:
        target = load_target(name)
        try:
            ensure(target["name"], peers_home())
            targets.append(target)
        except PeerMissing as error:
            say(f"going on without {name}: {error}")
            missing[name] = str(error).splitlines()[0].rstrip(":")
    return targets, missing


def installed_weir() -> Path:
    """The folder of the weir command that ``make bench`` installs, or else that of ``make setup``."""
    folders = [REPO / name / "bin" for name in (".venv-bench", ".venv")]
    return next((folder for folder in folders if (folder / "weir").exists()), folders[-1])


def measure(args: argparse.Namespace, names: list[str], keys: list[str], out: Path | None) -> dict[str, Result]:
    """Measures and saves one scenario after the other."""
    build()
    weir = (args.weir or Path(os.environ.get("WEIR_BENCH_BIN") or installed_weir())).resolve()
    if "weir" in names and not (weir / "weir").exists():
        raise BenchError(f"no weir command in {weir}: run `make bench`, or name its folder with --weir")
    targets, missing = available(names)
    replace = {"HOME": str(peers_home()), "HERE": str(HERE), "WEIR": str(weir)}
    quick = args.quick or args.what == ["quick"]
    options = Options(
        replace=replace,
        base_port=args.base_port,
        rounds=args.rounds or (2 if quick else 3),
        quick=quick,
        nice=args.nice,
        keep=args.keep,
    )
    host = machine()
    if host["cores"] < 2:
        say("only one core: the proxy shares it with the load, so rates and latencies mean little")
    versions = {target["name"]: target_version(target, replace) for target in targets}
    results: dict[str, Result] = {}
    with Bench(targets, options) as bench:
        missing |= bench.missing
        idle = {proxy.name: proxy.idle for proxy in bench.proxies}
        for key in keys:
            when = time.strftime("%F %T")
            rounds = bench.measure(key)
            results[key] = {
                "key": key,
                "when": when,
                "quick": quick,
                "machine": host,
                "missing": missing,
                "targets": {
                    target["name"]: {
                        "version": versions[target["name"]],
                        "note": target.get("note", ""),
                        "skip": target.get("skip", []),
                        "skip_reason": target.get("skip_reason", ""),
                        "idle": idle[target["name"]],
                    }
                    for target in targets
                    if target["name"] in idle
                },
                "rounds": rounds,
            }
            print(scenario(key, results[key]) + "\n", flush=True)
            if out:
                out.mkdir(parents=True, exist_ok=True)
                (out / f"{key}.json").write_text(json.dumps(results[key], indent=1) + "\n")
    return results


def write_page(folder: Path, page: Path) -> None:
    results = {
        key: json.loads((folder / f"{key}.json").read_text()) for key in SCENARIOS if (folder / f"{key}.json").exists()
    }
    if not results:
        raise BenchError(f"no results in {folder}: run `bench/run.sh all`")
    page.write_text(results_page(results))
    say(f"wrote {page}")


def print_bars(results: dict[str, Result]) -> None:
    """The bars that these results can judge."""
    judged = [one for one in judge(results) if one.verdict != "not measured"]
    if judged:
        print("### Bars\n\n" + bars_table(judged))


def run(args: argparse.Namespace) -> int:
    renice(os.getpid(), args.nice)
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # 2,000 streams need 4,000 sockets
    match args.what:
        case ["selftest"]:
            build()
            return subprocess.run([sys.executable, str(HERE / "harness" / "selftest.py")]).returncode
        case ["peers"]:
            return 1 if available([name for name in ALL if name != "weir"])[1] else 0
        case ["report"]:
            write_page(args.out or RESULTS, (args.out or HERE) / "RESULTS.md")
        case ["all"]:
            out = args.out or RESULTS
            measure(args, list(ALL), scenario_keys(args.only, "".join(SCENARIOS)), out)
            write_page(out, (args.out or HERE) / "RESULTS.md")
        case ["quick"]:
            print_bars(measure(args, list(QUICK), scenario_keys(args.only, "abcd"), None))
        case names:
            targets = [name for name in names if name != DIRECT]
            results = measure(args, targets, scenario_keys(args.only, "".join(SCENARIOS)), args.out)
            print_bars(results)
            if args.out:
                write_page(args.out, args.out / "RESULTS.md")
    return 0


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended too
    try:
        return run(arguments())
    except BenchError as error:
        say(f"bench/run.sh: {error}")
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
