"""The driver: two mock engines, one proxy per target, all up at once; each scenario takes the targets in turn.

In turn, round by round, so that a ratio between two targets comes from the same minutes. The proxies share the first
core allowed to this process (only one is under load at a time), the mocks and the load generator share the last.
Standard library only. README.md tells what every figure means.
"""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.procfs import MB, PeakRss, calibrate_us, cpu_s, ready_wait_s, renice, rss_mb, tree
from harness.scenarios import MOCK_RESET, SCENARIOS, Scenario

HERE = Path(__file__).resolve().parent
DIRECT = "direct"
DIALECTS = ("vllm", "tgi", "ollama", "lightllm")
Run = dict[str, Any]


class BenchError(Exception):
    """Something that the person at the terminal has to know; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to run: ``replace`` maps names to what ``@NAME@`` stands for in a target."""

    replace: dict[str, str]
    bin: Path = HERE / "build"
    base_port: int = 9100
    rounds: int = 3
    quick: bool = False
    nice: int = 0
    keep: bool = False


def http_get(port: int, path: str, timeout_s: float = 5) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def wait_for(ready: Callable[[], bool], limit_s: float) -> bool:
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        try:
            if ready():
                return True
        except OSError:
            pass
        time.sleep(0.1)
    return False


def spawn(command: list[str], core: int, log: Path, options: Options, env: dict[str, str] | None = None) -> Any:
    """Starts a process in a session of its own, on one core, with its output in ``log``."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=env,
            cwd=log.parent,
            start_new_session=True,
        )
    renice(process.pid, options.nice)
    return process


def end(process: Any) -> None:
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signal_number)
        except ProcessLookupError:
            return
        try:
            process.wait(5)
            return
        except subprocess.TimeoutExpired:
            continue


class Proxy:
    """One target's process, which is started anew if it died."""

    def __init__(self, target: dict[str, Any], port: int, replace: dict[str, str], core: int, options: Options) -> None:
        self.target, self.port = target, port
        self.name: str = target["name"]
        self.dir = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-"))
        self._replace = replace | {"DIR": str(self.dir)} | {f"PORT{n}": str(port + n - 1) for n in (2, 3)}
        self._replace |= {"PORT": str(port)}
        self._core, self._options = core, options
        self._process: Any = None
        self.idle: Run = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    def expand(self, text: str) -> str:
        for name, value in self._replace.items():
            text = text.replace(f"@{name}@", value)
        return text

    def start(self, answers: Callable[["Proxy"], bool]) -> None:
        for name, text in self.target.get("files", {}).items():
            (self.dir / name).write_text(self.expand("\n".join(text) + "\n"))
        env = dict(os.environ, **{k: self.expand(v) for k, v in self.target.get("env", {}).items()})
        command = [self.expand(word) for word in self.target["cmd"]]
        self._process = spawn(command, self._core, self.dir / "proxy.log", self._options, env)
        limit_s = self.target.get("ready_s", 60)
        if not wait_for(lambda: self.died() or answers(self), limit_s) or self.died():
            what = f"ended with {self._process.returncode}" if self.died() else f"is not ready after {limit_s} s"
            raise BenchError(f"{self.name} {what}:\n{self.log_tail()}")
        time.sleep(self.target.get("settle_s", 1))

    def died(self) -> bool:
        return self._process.poll() is not None

    def log_tail(self) -> str:
        log = self.dir / "proxy.log"
        return log.read_text(errors="replace")[-3000:] if log.exists() else ""

    def end(self) -> None:
        if self._process is not None:
            end(self._process)

    def stop(self) -> None:
        self.end()
        if self._options.keep:
            print("kept", self.dir, file=sys.stderr)
        else:
            shutil.rmtree(self.dir, ignore_errors=True)


class Mocks:
    """The two mock engines of one dialect, seen as one."""

    def __init__(self, core: int, options: Options, dialect: str) -> None:
        first_port = options.base_port + 1 + 10 * DIALECTS.index(dialect)
        self.ports = [first_port, first_port + 1]
        self._dialect = dialect
        self._core, self._options = core, options
        self._dir = Path(tempfile.mkdtemp(prefix="bench-mocks-"))
        self._processes: list[Any] = []

    def start(self) -> None:
        for port in self.ports:
            command = [str(self._options.bin / "mockengine"), "--port", str(port)]
            command += ["--dialect", self._dialect]
            self._processes.append(spawn(command, self._core, self._dir / f"{port}.log", self._options))
        up = wait_for(lambda: all(http_get(port, "/health")[0] == 200 for port in self.ports), 5)
        if not up or any(process.poll() is not None for process in self._processes):
            ports = ", ".join(map(str, self.ports))
            raise BenchError(f"a mock engine could not start on ports {ports}: in use? Try another --base-port")

    def stop(self) -> None:
        for process in self._processes:
            end(process)
        shutil.rmtree(self._dir, ignore_errors=True)

    def set(self, query: str) -> None:
        for port in self.ports:
            http_get(port, f"/mock/config?{query}")

    def metrics(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for port in self.ports:
            for line in http_get(port, "/metrics")[1].decode().splitlines():
                if line.startswith("mock_"):
                    name, value = line.removeprefix("mock_").split()
                    total[name] = total.get(name, 0) + int(value)
        return total

    def aborts(self) -> list[dict[str, int]]:
        """Each client that left an engine: ``seed``, ``t_us`` (monotonic), ``at`` (tokens sent by then)."""
        return [abort for port in self.ports for abort in json.loads(http_get(port, "/mock/aborts")[1])["aborts"]]


class StallWatch(threading.Thread):
    """Once a second: MB that the engines could write, and growth of the proxy's RSS, since the start."""

    def __init__(self, mocks: Mocks, pid: int | None) -> None:
        super().__init__(daemon=True)
        self._mocks, self._pid = mocks, pid
        self._done = threading.Event()
        self.base_rss_mb = rss_mb(pid) if pid else 0.0
        self.marks: list[tuple[float, float, float]] = []
        self._base_bytes = mocks.metrics()["bytes_out_total"]
        self.start()

    def run(self) -> None:
        start_s = time.monotonic()
        while not self._done.wait(1):
            absorbed_mb = (self._mocks.metrics()["bytes_out_total"] - self._base_bytes) / MB
            growth_mb = rss_mb(self._pid) - self.base_rss_mb if self._pid else 0.0
            self.marks.append((round(time.monotonic() - start_s, 1), round(absorbed_mb, 1), round(growth_mb, 1)))

    def stop(self) -> None:
        self._done.set()
        self.join()

    def absorbed_mb(self, at_s: float) -> float:
        return min(self.marks, key=lambda mark: abs(mark[0] - at_s))[1]


class Bench:
    """Use as a context manager: everything is up inside, and ended outside."""

    def __init__(self, targets: list[dict[str, Any]], options: Options) -> None:
        cores = sorted(os.sched_getaffinity(0))
        self._proxy_core, self._load_core = cores[0], cores[-1]
        self._options = options
        dialects = {"vllm", *(target.get("dialect", "vllm") for target in targets)}
        self._mocks = {dialect: Mocks(self._load_core, options, dialect) for dialect in sorted(dialects)}
        self.proxies: list[Proxy] = []
        self.missing: dict[str, str] = {}  # name -> why it did not start
        for i, target in enumerate(targets):
            port = options.base_port + 50 + 10 * i
            ports = self._mocks[target.get("dialect", "vllm")].ports
            upstreams = {f"UP{n + 1}": str(number) for n, number in enumerate(ports)}
            self.proxies.append(Proxy(target, port, options.replace | upstreams, self._proxy_core, options))

    def __enter__(self) -> "Bench":
        try:
            for mocks in self._mocks.values():
                mocks.start()
            self._start_proxies()
            before = {proxy.name: cpu_s(proxy.pid) for proxy in self.proxies}
            time.sleep(2)
            for proxy in self.proxies:
                proxy.idle = {
                    "rss_mb": round(rss_mb(proxy.pid), 1),
                    "cpu_share": round((cpu_s(proxy.pid) - before[proxy.name]) / 2, 3),
                    "processes": len(tree(proxy.pid)),
                }
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start_proxies(self) -> None:
        """Goes on without one that does not start, but for the first: that is the one the run is about."""
        for proxy in list(self.proxies):
            say(f"starting {proxy.name}")
            try:
                proxy.start(self._answers)
            except BenchError as error:
                if proxy is self.proxies[0]:
                    raise
                say(f"going on without {proxy.name}: {error}")
                self.missing[proxy.name] = str(error).splitlines()[0].rstrip(":")
                self.proxies.remove(proxy)
                proxy.stop()

    def __exit__(self, *_: object) -> None:
        for proxy in self.proxies:
            proxy.stop()
        for mocks in self._mocks.values():
            mocks.stop()

    def measure(self, key: str) -> list[dict[str, Run]]:
        """Runs one scenario: one dict a round, of target name -> what was measured ("direct" is always there)."""
        scenario = SCENARIOS[key]
        rounds: list[dict[str, Run]] = []
        turns = [proxy for proxy in self.proxies if key not in proxy.target.get("skip", [])]
        total = scenario.rounds or self._options.rounds
        for number in range(total):
            shift = number % max(1, len(turns))  # another one first each round: drift favours nobody
            runs: dict[str, Run] = {}
            for proxy in [None, *turns[shift:], *turns[:shift]]:
                name = proxy.name if proxy else DIRECT
                say(f"{key} round {number + 1} of {total}: {name}")
                try:
                    if proxy and (scenario.fresh or proxy.died()):
                        proxy.end()
                        proxy.start(self._answers)
                    start_mb = rss_mb(proxy.pid) if proxy else 0
                    runs[name] = self._measure(scenario, proxy)
                    runs[name]["rss_start_mb"] = round(start_mb, 1)
                except BenchError as error:
                    say(f"no result for {name} in {key}: {error}")
                    continue
                if proxy and proxy.died():
                    runs[name]["died"] = proxy.log_tail()[-500:]
            rounds.append(runs)
        return rounds

    # ------------------------------------------------------------------ one measurement
    def _mocks_of(self, proxy: Proxy | None) -> Mocks:
        """The engines behind this one; OpenAI's dialect is what the load generator itself speaks."""
        return self._mocks[proxy.target.get("dialect", "vllm") if proxy else "vllm"]

    def _measure(self, scenario: Scenario, proxy: Proxy | None) -> Run:
        mocks = self._mocks_of(proxy)
        mocks.set(MOCK_RESET)
        flags, duration_s = scenario.load, scenario.duration_s
        if self._options.quick:
            flags = scenario.quick_load or flags
            duration_s = duration_s and max(1.5, duration_s / 2)
        if scenario.kind in ("rate", "paced"):
            self._warm_up(scenario, proxy)
        mocks.set(scenario.mock)
        if scenario.kind == "rate" and proxy is None:
            duration_s = duration_s and duration_s / 2
        if duration_s:
            flags += f" --duration {duration_s}"
        try:
            if scenario.kind == "abort":
                return self._aborts(flags, proxy)
            if scenario.kind == "stall":
                return self._stall(flags, proxy)
            return self._observed_load(flags, proxy)
        finally:
            mocks.set(MOCK_RESET)

    def _warm_up(self, scenario: Scenario, proxy: Proxy | None) -> None:
        flags = scenario.load.split(" --rate")[0].split(" --ramp")[0]
        connections = flags.split("--conns ")[1].split()[0]
        flags = flags.replace(f"--conns {connections}", f"--conns {min(int(connections), 16)}")
        self._load(f"{flags} --duration {0.5 if proxy is None else 1} --tokens 64", proxy)

    def _aborts(self, flags: str, proxy: Proxy | None) -> Run:
        mocks = self._mocks_of(proxy)
        mocks.set("reset=1")
        before = mocks.metrics()
        run = self._observed_load(flags, proxy)
        left = run["aborted"]

        def settled() -> bool:
            now = mocks.metrics()
            return now["running"] == 0 and now["requests_total"] - before["requests_total"] >= left

        # An answer that nobody stops ends by itself within 10 s; a busy proxy sends the request after the client left.
        wait_for(settled, 14)
        after = mocks.metrics()
        left_us = {abort["seed"]: abort["t_us"] for abort in run.pop("aborts", [])}
        seen = {abort["seed"]: abort for abort in mocks.aborts() if abort["seed"] in left_us}
        lag_ms = sorted((seen[seed]["t_us"] - left_us[seed]) / 1000 for seed in seen)
        reached = after["requests_total"] - before["requests_total"]
        run["abort"] = {
            "left": left,
            "reached": reached,
            "never_reached": max(0, left - reached),
            "seen": len(seen),
            "within_100_ms": sum(lag <= 100 for lag in lag_ms),
            "ran_to_the_end": reached - (after["aborts_total"] - before["aborts_total"]) - after["running"],
            "still_running": after["running"],
            "lag_ms_p50": round(lag_ms[len(lag_ms) // 2], 2) if lag_ms else None,
            "lag_ms_max": round(lag_ms[-1], 2) if lag_ms else None,
            "tokens_at_abort_max": max((abort["at"] for abort in seen.values()), default=None),
        }
        return run

    def _stall(self, flags: str, proxy: Proxy | None) -> Run:
        pid = proxy.pid if proxy else None
        watch = StallWatch(self._mocks_of(proxy), pid)
        run = self._observed_load(flags, proxy)
        watch.stop()
        time.sleep(2)
        run["stall"] = {
            "absorbed_mb_4s": watch.absorbed_mb(4),
            "absorbed_mb_8s": watch.marks[-1][1],
            "rss_growth_mb": round(run["rss_peak_mb"] - watch.base_rss_mb, 1) if pid else None,
            "rss_after_mb": round(rss_mb(pid) - watch.base_rss_mb, 1) if pid else None,
            "running_after": self._mocks_of(proxy).metrics()["running"],
            "marks": watch.marks,
        }
        return run

    def _observed_load(self, flags: str, proxy: Proxy | None) -> Run:
        """The load, with what it cost the proxy: CPU of its whole process tree, peak RSS, and how quiet it was."""
        calibration_us = calibrate_us(self._proxy_core)
        others = [other.pid for other in self.proxies if other is not proxy]
        mocks = self._mocks_of(proxy)
        before = mocks.metrics()
        others_before_s, start_s = sum(map(cpu_s, others)), time.monotonic()
        if proxy is None:
            run = self._load(flags, None)
        else:
            root = proxy.pid
            wait_before_s, cpu_before_s, peak = ready_wait_s(root), cpu_s(root), PeakRss(root)
            run = self._load(flags, proxy)
            run["cpu_s"] = round(cpu_s(root) - cpu_before_s, 4)
            run["rss_peak_mb"] = round(peak.stop(), 1)
            run["ready_wait_s"] = round(ready_wait_s(root) - wait_before_s, 3)
        wall_s = time.monotonic() - start_s
        run["others_cpu_share"] = round((sum(map(cpu_s, others)) - others_before_s) / wall_s, 3)
        after = mocks.metrics()
        run["mock"] = {name: after[name] - before.get(name, 0) for name in after}
        run["calib_us"] = [calibration_us, calibrate_us(self._proxy_core)]
        if proxy is not None:
            requests, chunks = run["ok"] + run["failed"], run["mock"]["chunks_total"]
            run["cpu_share"] = round(run["cpu_s"] / wall_s, 3)
            run["cpu_us_per_request"] = round(run["cpu_s"] / requests * 1e6, 1) if requests else None
            run["cpu_us_per_chunk"] = round(run["cpu_s"] / chunks * 1e6, 2) if chunks else None
        return run

    def _load(self, flags: str, proxy: Proxy | None) -> Run:
        port = proxy.port if proxy else self._mocks_of(None).ports[0]
        command = ["taskset", "-c", str(self._load_core), str(self._options.bin / "ssebench"), "--port", str(port)]
        command += flags.split()
        if proxy:
            command += ["--model", proxy.target.get("model", "mock")]
            command += ["--path", proxy.target.get("path", "/v1/chat/completions")]
            for header in proxy.target.get("headers", []):
                command += ["--header", proxy.expand(header)]
            command += ["--no-seed"] if proxy.target.get("no_seed") else []
        try:
            run: Run = json.loads(subprocess.run(command, stdout=subprocess.PIPE, timeout=300).stdout)
        except subprocess.TimeoutExpired:
            raise BenchError("the load generator did not end within 300 s") from None
        return run

    def _answers(self, proxy: Proxy) -> bool:
        return self._load("--no-stream --conns 1 --requests 2 --tokens 4 --timeout 5", proxy)["ok"] == 2


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
