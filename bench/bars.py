"""The bars Weir has to clear, each judged on figures of one run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tables import Result, added_ms, median, number, pairs_of, runs_of, saw, stream_kb

Verdict = Literal["pass", "MISS", "not measured"]
WEIR = "weir"


@dataclass(frozen=True, slots=True)
class Judged:
    """One line of the table of bars; ``measured`` and ``peer`` are text, ``ratio`` is Weir's figure over the peer's."""

    scenario: str
    what: str
    bar: str
    measured: str = "-"
    peer: str = "-"
    ratio: float | None = None
    verdict: Verdict = "not measured"


@dataclass(frozen=True, slots=True)
class CpuBar:
    """CPU time against a peer's in the same run: the median over the rounds of the ratio within each."""

    scenario: str
    what: str
    figure: str
    peer: str
    most: float

    def judge(self, result: Result) -> Judged:
        bar = (
            f"at most {self.most:g} x {self.peer}"
            if self.most >= 1
            else f"at least {1 / self.most:g} x less than {self.peer}"
        )
        pairs = pairs_of(result, WEIR, self.peer)
        ratio = median(ours[self.figure] / theirs[self.figure] for ours, theirs in pairs if theirs[self.figure])
        mine = median(run[self.figure] for run in runs_of(result, WEIR))
        theirs = median(run[self.figure] for run in runs_of(result, self.peer))
        if ratio is None:
            return Judged(self.scenario, self.what, bar, f"{number(mine)} us")
        verdict: Verdict = "pass" if ratio <= self.most and not _failures(result) else "MISS"
        note = f", {_failures(result)} failed" if _failures(result) else ""
        peer = f"{self.peer} {number(theirs)} us"
        return Judged(self.scenario, self.what, bar, f"{number(mine)} us{note}", peer, ratio, verdict)


@dataclass(frozen=True, slots=True)
class OwnBar:
    """A bar without a peer: ``look`` gives what was measured and whether it clears the bar."""

    scenario: str
    what: str
    bar: str
    look: Callable[[Result], tuple[str, bool]]

    def judge(self, result: Result) -> Judged:
        if not runs_of(result, WEIR):
            return Judged(self.scenario, self.what, self.bar)
        measured, cleared = self.look(result)
        return Judged(self.scenario, self.what, self.bar, measured, verdict="pass" if cleared else "MISS")


def _failures(result: Result) -> int:
    return sum(run["failed"] for run in runs_of(result, WEIR))


def _added_ttft(quantile: str, most_ms: float) -> Callable[[Result], tuple[str, bool]]:
    def look(result: Result) -> tuple[str, bool]:
        added = added_ms(result, WEIR, "ttft_us", quantile)
        return ("no stream", False) if added is None else (f"{added:.2f} ms", added <= most_ms)

    return look


def _memory(result: Result) -> tuple[str, bool]:
    kb = stream_kb(result, WEIR)
    return ("-", False) if kb is None else (f"{kb:.1f} kB", kb <= 25 and not _failures(result))


def _no_stalls(result: Result) -> tuple[str, bool]:
    p50_ms, p99_ms = (median(run["e2e_us"][q] / 1000 for run in runs_of(result, WEIR)) or 0 for q in ("p50", "p99"))
    return f"p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms", 0 < p99_ms < 40 and not _failures(result)


def _aborts(result: Result) -> tuple[str, bool]:
    counts = runs_of(result, WEIR)[0]["abort"]
    left, seen, lag_ms = counts["left"], counts["seen"], counts["lag_ms_max"]
    never = counts["never_reached"]  # the gateway gave the request up before it had an engine for it
    cleared = left > 0 and seen + never == left and (lag_ms or 0) <= 100
    note = f" ({never} never reached it)" if never else ""
    return f"{seen} of {left}{note}, max {number(lag_ms)} ms", cleared


def _absorbed(result: Result) -> tuple[str, bool]:
    stall = runs_of(result, WEIR)[0]["stall"]
    at_4s, at_8s = stall["absorbed_mb_4s"], stall["absorbed_mb_8s"]
    # 1 MB is the sockets' breathing; an unbounded relay takes a thousand.
    return f"{at_4s:.1f} MB at 4 s, {at_8s:.1f} at 8 s", at_8s - at_4s <= 1


def _growth(result: Result) -> tuple[str, bool]:
    growth_mb = runs_of(result, WEIR)[0]["stall"]["rss_growth_mb"]
    return f"{growth_mb:.1f} MB", growth_mb < 10


def _whole(result: Result) -> tuple[str, bool]:
    run = runs_of(result, WEIR)[0]
    return f"{run['ok']} of {run['started']}", run["ok"] == run["started"] == 4


def _told(result: Result) -> tuple[str, bool]:
    run = runs_of(result, WEIR)[0]
    told = run["failures"]["error_event"] + run["failures"]["error_event_cut"]
    measured = f"{saw(run)}; {run['failed_with_done']} with [DONE], {run['ok']} whole"
    return measured, told == run["started"] == 40 and run["failed_with_done"] == 0


BARS: list[CpuBar | OwnBar] = [
    CpuBar("a", "CPU per small non-stream request", "cpu_us_per_request", "vllm-router", 1.6),
    CpuBar("b", "CPU per 100 kB prompt", "cpu_us_per_request", "vllm-router", 1),
    CpuBar("c", "CPU per 64-chunk stream", "cpu_us_per_request", "vllm-router", 1),
    CpuBar("d", "CPU per paced chunk, 200 streams", "cpu_us_per_chunk", "envoy", 1),
    CpuBar("e", "CPU per paced chunk, 2,000 streams", "cpu_us_per_chunk", "envoy", 1),
    OwnBar("d", "added TTFT p50, 200 streams", "at most 0.5 ms", _added_ttft("p50", 0.5)),
    OwnBar("d", "added TTFT p99, 200 streams", "at most 3 ms", _added_ttft("p99", 3)),
    OwnBar("e", "memory per open stream, 2,000 streams", "at most 25 kB", _memory),
    OwnBar("f", "clients leave in mid-stream", "all seen, max 100 ms", _aborts),
    OwnBar("j", "clients leave during prefill", "all seen, max 100 ms", _aborts),
    OwnBar("k", "clients leave a non-stream request", "all seen, max 100 ms", _aborts),
    OwnBar("g", "clients that never read: bytes taken from the engine", "stand still from 4 s to 8 s", _absorbed),
    OwnBar("g", "clients that never read: memory growth", "under 10 MB", _growth),
    OwnBar("h", "clients that stall and go on: streams whole", "4 of 4", _whole),
    OwnBar("c", "bursts: no stall of 40 ms", "p50 and p99 under 40 ms", _no_stalls),
    OwnBar("i", "the engine dies in mid-stream", "40 of 40 see an error event, none [DONE]", _told),
    CpuBar("a", "CPU per request against LiteLLM", "cpu_us_per_request", "litellm", 1 / 50),
    CpuBar("c", "CPU per chunk in bursts against LiteLLM", "cpu_us_per_chunk", "litellm", 1 / 50),
    CpuBar("d", "CPU per paced chunk against LiteLLM", "cpu_us_per_chunk", "litellm", 1 / 50),
]


def judge(results: dict[str, Result]) -> list[Judged]:
    """Every bar whose scenario was run; the others are left out."""
    return [bar.judge(results[bar.scenario]) for bar in BARS if bar.scenario in results]
