"""RESULTS.md out of the saved results of all scenarios."""

from bars import Judged, judge
from harness.scenarios import SCENARIOS
from tables import Result, calibration, markdown, number, scenario_table, stream_kb


def bars_table(judged: list[Judged]) -> str:
    """The verdicts, one line a bar."""
    header = ["", "what", "bar", "Weir", "peer, same run", "ratio", "verdict"]
    return markdown(
        header,
        (
            [
                one.scenario,
                one.what,
                one.bar,
                one.measured,
                one.peer,
                None if one.ratio is None else f"{one.ratio:.3f}",
                f"**{one.verdict}**" if one.verdict == "MISS" else one.verdict,
            ]
            for one in judged
        ),
    )


def results_page(results: dict[str, Result]) -> str:
    judged = judge(results)
    counts = {verdict: sum(one.verdict == verdict for one in judged) for verdict in ("pass", "MISS", "not measured")}
    score = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    ordered = {key: results[key] for key in SCENARIOS if key in results}
    parts = [
        "# Benchmark results",
        "Written by `bench/run.sh all`; do not edit. What each scenario and figure means: "
        "[docs/benchmarks.md](../docs/benchmarks.md).\nCompare ratios within a table, not figures of two days: "
        "each table's targets were measured in turn, round by round, in the same minutes.",
        "## Bars\n\n" + (score + ".\n\n" if score else "") + bars_table(judged),
        "The ratio is Weir's figure over the peer's: the median over the rounds of the ratio within each.",
        "## Where and what",
        *_where(ordered),
        "## Scenarios",
        *(scenario(key, result) for key, result in ordered.items()),
        "### Idle\n\n" + _idle(ordered),
    ]
    return "\n\n".join(parts) + "\n"


def _where(results: dict[str, Result]) -> list[str]:
    parts = []
    machines = {_machine(result): None for result in results.values()}
    when = sorted(result["when"] for result in results.values())
    span = when[0] if when[0] == when[-1] else f"{when[0]} to {when[-1]} (start of the first and of the last scenario)"
    parts.append(f"Measured {span}, on {'; and on '.join(machines)}.")
    rows: dict[tuple[str, str, str], list[str]] = {}
    for key, result in results.items():
        for name, target in result["targets"].items():
            rows.setdefault((name, target["version"], target["note"]), []).append(key)
    parts.append(
        markdown(
            ["target", "versions", "set-up", "scenarios"],
            ([name, version or "-", note or "-", " ".join(keys)] for (name, version, note), keys in rows.items()),
        )
    )
    skipped = {
        f"{name} skips {', '.join(target['skip'])}: {target['skip_reason']}."
        for result in results.values()
        for name, target in result["targets"].items()
        if target["skip"]
    }
    missing = {
        f"{name} was not measured: {why}" for result in results.values() for name, why in result["missing"].items()
    }
    parts += sorted(skipped | missing)
    lows, medians, highs = zip(*map(calibration, results.values()), strict=True)
    parts.append(
        "Calibration (CPU time of a fixed job on the proxies' core, around every run): "
        f"{min(lows):.2f} to {max(highs):.2f} us; "
        f"the scenarios' medians lie between {min(medians):.2f} and {max(medians):.2f} us "
        f"(spread {(max(medians) / min(medians) - 1) * 100:.0f} %). "
        "A large spread means that the machine was not quiet."
    )
    return parts


def _machine(result: Result) -> str:
    machine = result["machine"]
    return (
        f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gib']} GiB, {machine['kernel']}, "
        f"Python {machine['python']} for the driver"
    )


def scenario(key: str, result: Result) -> str:
    """One scenario: its table, when it was measured, and how quiet the machine was."""
    low, middle, high = calibration(result)
    rounds = len(result["rounds"])
    runs = [run for one in result["rounds"] for run in one.values()]
    others = max(run["others_cpu_share"] for run in runs)
    lines = [
        f"### {key}: {SCENARIOS[key].title}",
        scenario_table(key, result),
        f"{result['when']}, {rounds} round{'s' if rounds > 1 else ''}{' (quick)' if result['quick'] else ''}; "
        f"calibration {middle:.2f} us ({low:.2f} to {high:.2f}); "
        f"the idle targets took at most {others * 100:.1f} % of their core.",
    ]
    died = sorted({name for one in result["rounds"] for name, run in one.items() if "died" in run})
    if died:
        lines.append(f"Died: {', '.join(died)}.")
    return "\n\n".join(lines)


def _idle(results: dict[str, Result]) -> str:
    first: dict[str, Result] = {}
    for result in results.values():
        for name in result["targets"]:
            first.setdefault(name, result)
    at_2000 = results.get("e")
    rows = []
    for name, result in sorted(first.items(), key=lambda item: item[1]["targets"][item[0]]["idle"]["rss_mb"]):
        idle = result["targets"][name]["idle"]
        kb = stream_kb(at_2000, name) if at_2000 and name in at_2000["targets"] else None
        rows.append([name, idle["rss_mb"], idle["processes"], number(idle["cpu_share"]), kb])
    return markdown(["target", "RSS MB", "processes", "idle CPU share", "kB a stream at 2,000"], rows)
