"""The scenarios: what the mock engines do, what the client does, and which kind of result comes of it."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["rate", "paced", "abort", "resume", "cut", "stall"]

MOCK_RESET = "ttft_ms=0&itl_ms=0&jitter=0&max_running=0&error_rate=0&cut_rate=0&burst=8&coalesce=1"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario.

    ``kind`` decides what is measured: ``rate`` is a closed loop that saturates, ``paced`` a fixed load; in ``abort``
    the clients leave, in ``resume`` they stall and go on, in ``cut`` the engine dies, in ``stall`` they never read.
    """

    title: str
    kind: Kind
    load: str  # flags of ssebench
    mock: str = "tokens=64"  # query of the mock's /mock/config
    duration_s: float | None = None  # None: the load ends by its number of requests
    quick_load: str | None = None  # a shorter load for a quick run, where duration_s cannot shorten it
    rounds: int | None = None  # None: as many as asked for
    fresh: bool = False  # a new process each time: memory that another scenario left in the allocator would hide growth


SCENARIOS: dict[str, Scenario] = {
    "a": Scenario(
        "non-stream, 100 B prompt, 64 tokens, 32 connections",
        "rate",
        "--no-stream --conns 32 --tokens 64 --body-bytes 100",
        duration_s=4,
    ),
    "b": Scenario(
        "non-stream, 100 kB prompt, 64 tokens, 16 connections",
        "rate",
        "--no-stream --conns 16 --tokens 64 --body-bytes 100000",
        duration_s=4,
    ),
    "c": Scenario(
        "stream, 64 tokens as fast as possible, 16 connections",
        "rate",
        "--conns 16 --tokens 64 --usage",
        duration_s=4,
    ),
    "l": Scenario(
        "light load: 20 streams/s (Poisson), 32 tokens, TTFT 50 ms, ITL 20 ms",
        "paced",
        "--conns 200 --rate 20 --tokens 32 --body-bytes 4096 --usage",
        "ttft_ms=50&itl_ms=20",
        duration_s=5,
    ),
    "d": Scenario(
        "200 concurrent streams at 20 tokens/s",
        "paced",
        "--conns 200 --ramp 1.5 --requests 200 --tokens 140 --usage",
        "ttft_ms=100&itl_ms=50",
        quick_load="--conns 200 --ramp 1.5 --requests 200 --tokens 90 --usage",
    ),
    "e": Scenario(
        "2,000 concurrent streams at 2 tokens/s",
        "paced",
        "--conns 2000 --ramp 6 --requests 2000 --tokens 24 --usage --timeout 90",
        "ttft_ms=100&itl_ms=500",
        fresh=True,
    ),
    "f": Scenario(
        "clients leave after 5 tokens of 200 (ITL 50 ms)",
        "abort",
        "--conns 40 --ramp 0.5 --requests 160 --tokens 200 --abort-after 5",
        "ttft_ms=50&itl_ms=50",
        rounds=1,
    ),
    "j": Scenario(
        "clients leave before the first token (0.5 s of a TTFT of 6 s, the engine's headers come at once)",
        "abort",
        "--conns 40 --requests 40 --tokens 50 --abort-ms 500",
        "ttft_ms=6000&itl_ms=20",
        rounds=1,
    ),
    "k": Scenario(
        "clients leave 0.5 s into a non-stream answer that takes 6 s",
        "abort",
        "--no-stream --conns 40 --requests 40 --tokens 50 --abort-ms 500",
        "ttft_ms=6000",
        rounds=1,
    ),
    "h": Scenario(
        "4 clients stall for 2 s, then read 20,000 tokens",
        "resume",
        "--conns 4 --requests 4 --tokens 20000 --stall 2 --rcvbuf 65536 --timeout 90",
        rounds=1,
    ),
    "i": Scenario(
        "the engine dies in mid-stream",
        "cut",
        "--conns 4 --requests 40 --tokens 64 --timeout 20",
        "cut_rate=1",
        rounds=1,
    ),
    # The last one: what it leaves behind in a proxy must not spoil another.
    "g": Scenario(
        "10 clients that never read, endless streams",
        "stall",
        "--conns 10 --requests 10 --tokens 1000000 --slow-bps 0 --rcvbuf 65536 --duration 8",
        rounds=1,
        fresh=True,
    ),
}
