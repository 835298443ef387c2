"""Runs one policy through one scenario and measures both parts of the trace."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from statistics import median

from .engine import PROFILES, Engine, Loop, Request
from .gateway import Gateway
from .policies import Factory
from .workload import Scenario, build

TTFT_SLO_S = 2.0
TPOT_SLO_S = 0.1


@dataclass(frozen=True, slots=True)
class Measures:
    """Latencies in seconds; goodput counts every request asked, also those shed, lost or failed."""

    requests: int
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    tpot_p50_s: float
    tpot_p99_s: float
    goodput: float
    goodput_rps: float
    cached: float  # share of prompt tokens
    spread_s: float  # p95 over time of the worst endpoint's true TTFT less the median endpoint's
    lost: float  # share without a complete answer


@dataclass(frozen=True, slots=True)
class Result:
    tune: Measures
    held_out: Measures
    preemptions: int


class _Fan:
    """Hands an engine's events to the gateway that sent the request."""

    def __init__(self) -> None:
        self.gateways: list[Gateway] = []

    def first_token(self, request: Request) -> None:
        self.gateways[request.gateway].first_token(request)

    def finished(self, request: Request) -> None:
        self.gateways[request.gateway].finished(request)

    def failed(self, request: Request) -> None:
        self.gateways[request.gateway].failed(request)


def run(
    scenario: Scenario, factory: Factory, load: float, seed: int, *, scrape_s: float = 2.0, minutes: float | None = None
) -> Result:
    work = build(scenario, load, seed, minutes)
    loop, fan = Loop(), _Fan()
    engines = [Engine(i, PROFILES[name], loop, fan) for i, name in enumerate(scenario.fleet)]
    random = Random(seed)
    fan.gateways = [
        Gateway(loop, engines, work.weights, factory(engines), Random(random.getrandbits(32)))
        for _ in range(scenario.gateways)
    ]
    pressures: list[tuple[float, float]] = []

    def arrive(index: int) -> None:
        request = work.requests[index]
        if index + 1 < len(work.requests):
            loop.at(work.requests[index + 1].arrival_s, arrive, index + 1)
        fan.gateways[request.gateway].arrive(request)

    def scrape(_: None) -> None:
        for gateway in fan.gateways:
            for engine in engines:
                gateway.probing.scrape(engine)
        if loop.now_s < work.end_s:
            loop.at(loop.now_s + scrape_s, scrape)

    def watch(_: None) -> None:
        waits = sorted(e.true_ttft_s(1000) for e in engines if e.alive)
        pressures.append((loop.now_s, waits[-1] - waits[len(waits) // 2]))
        if loop.now_s < work.end_s:
            loop.at(loop.now_s + 1.0, watch)

    if fault := scenario.fault:
        engine = engines[fault.endpoint]

        def pace(factor: float) -> None:
            engine.slow = factor

        def die(_: None) -> None:
            engine.kill()

        def come_back(_: None) -> None:
            engine.revive()

        for begin_s, end_s in ((0.0, work.held_out_from_s), (work.held_out_from_s, work.end_s)):
            at_s = begin_s + fault.begin * (end_s - begin_s)
            back_s = at_s + min(fault.longest_s, fault.share * (end_s - begin_s))
            if fault.slow:
                loop.at(at_s, pace, fault.slow)
                loop.at(back_s, pace, 1.0)
            else:
                loop.at(at_s, die)
                loop.at(back_s, come_back)
    loop.at(0.0, arrive, 0)
    loop.at(0.0, scrape)
    loop.at(0.5, watch)
    loop.run()
    split_s = work.held_out_from_s
    parts = []
    for held_out, span_s in ((False, split_s), (True, work.end_s - split_s)):
        spreads = [spread for at_s, spread in pressures if (at_s >= split_s) == held_out]
        parts.append(measure([r for r in work.requests if r.held_out == held_out], span_s, spreads))
    return Result(parts[0], parts[1], sum(e.preemptions for e in engines))


def measure(requests: Sequence[Request], span_s: float, spreads: Sequence[float]) -> Measures:
    ttfts, tpots = [0.0], [0.0]
    done = prompt_tokens = cached_tokens = 0
    for r in requests:
        seen_s = r.first_s if r.first_s is not None else r.end_s
        if r.outcome != "shed" and seen_s is not None:
            ttfts.append(seen_s - r.arrival_s)
        if r.outcome == "ok" and r.first_s is not None and r.end_s is not None:
            done += 1
            prompt_tokens += r.prompt_tokens
            cached_tokens += r.cached_tokens
            if r.output_tokens > 1:
                tpots.append((r.end_s - r.first_s) / (r.output_tokens - 1))
    good = sum(r.meets(TTFT_SLO_S, TPOT_SLO_S) for r in requests)
    t50, t90, t99 = percentiles(ttfts[1:] or ttfts, 50, 90, 99)
    p50, p99 = percentiles(tpots[1:] or tpots, 50, 99)
    return Measures(
        requests=len(requests),
        ttft_p50_s=t50,
        ttft_p90_s=t90,
        ttft_p99_s=t99,
        tpot_p50_s=p50,
        tpot_p99_s=p99,
        goodput=good / len(requests),
        goodput_rps=good / span_s,
        cached=cached_tokens / max(1, prompt_tokens),
        spread_s=percentiles(spreads or [0.0], 95)[0],
        lost=1 - done / len(requests),
    )


def percentiles(values: Sequence[float], *which: float) -> list[float]:
    """Linear between the two nearest ranks."""
    ordered = sorted(values)
    found: list[float] = []
    for percent in which:
        rank = (len(ordered) - 1) * percent / 100
        below = int(rank)
        above = min(below + 1, len(ordered) - 1)
        found.append(ordered[below] + (ordered[above] - ordered[below]) * (rank - below))
    return found


def middle(results: Sequence[Measures]) -> Measures:
    """The median of each measure over seeds."""
    columns = [asdict(r) for r in results]
    return replace(results[0], **{name: median(c[name] for c in columns) for name in columns[0]})
