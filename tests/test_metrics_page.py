"""What the page says of the metrics is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.config import MetricsConfig
from gateway.instruments import histogram
from gateway.instruments.exposition import OPENMETRICS
from gateway.instruments.worker_numbers import Seat, WorkerNumbers
from gateway.metrics import Metrics
from tests.fakes.flown import fleet, fly

PAGE = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text()
EDGES = (histogram.TTFT, histogram.GAP, histogram.DURATION, histogram.QUEUE, histogram.SMALL)


def test_the_table_of_families_is_the_codes(tmp_path: Path) -> None:
    metrics = Metrics(fleet(), workers=WorkerNumbers(Seat(0, 2, tmp_path)))
    rows = ["| name | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for family in sorted(metrics.told, key=lambda family: family.name):
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    found = re.search(r"<!-- families:.*?-->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    assert found is not None
    assert found[1].splitlines() == rows


def test_the_edges_are_the_codes() -> None:
    written = [
        tuple(float(edge) for edge in cells.split())
        for cells in re.findall(r"^\| [^|]+ \| ((?:[0-9.]+ )+[0-9.]+) \|$", PAGE, re.MULTILINE)
    ]
    assert written == [tuple(map(float, edges)) for edges in EDGES]


def test_every_family_with_exemplars_is_named() -> None:
    metrics = Metrics(fleet())
    fly(metrics, keep_reason="slow", trace_id="f" * 32)
    text = metrics.render(OPENMETRICS)
    found = set(re.findall(r"^(weir_\w+)_bucket\{.* # \{", text, re.MULTILINE))
    paragraph = PAGE.partition("## From a number to a trace")[2].partition("##")[0]
    assert found == set(re.findall(r"`(weir_\w+)`", paragraph))


def test_every_name_of_the_conventions_is_named() -> None:
    text = Metrics(fleet(), options=MetricsConfig(genai_names=True)).render()
    assert set(re.findall(r"^# TYPE (gen_ai\w+)", text, re.MULTILINE)) == set(
        re.findall(r"^\| `(gen_ai\w+)` \|", PAGE, re.MULTILINE)
    )
