"""The exposition as Prometheus asks for it: text or OpenMetrics, packed or not, with exemplars."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.instruments import exposition
from gateway.instruments.exposition import OPENMETRICS, TEXT, takes_gzip, wanted
from gateway.instruments.histogram import Exemplar
from gateway.instruments.metrics_text import CounterFamily, HistogramFamily, ReadFamily, Room
from gateway.metrics import Metrics
from tests.fakes.flown import TRACE_ID, families, fleet, fly, samples
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0
from tests.fakes.scripted import ScriptedUpstream, chat_stream

PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
HOSTILE = '"\\\n}{=,# é\x00\u2028'


@pytest.mark.parametrize(
    ("accept", "format"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/html", TEXT),
        ("text/plain;version=0.0.4", TEXT),
        (PROMETHEUS_2_42, OPENMETRICS),
        (PROMETHEUS_3, OPENMETRICS),
        ("Application/OpenMetrics-Text; Version=1.0.0", OPENMETRICS),
        ('application/openmetrics-text; version="1.0.0"', OPENMETRICS),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1", TEXT),
        ("application/openmetrics-text;version=2.0.0", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=0.3,text/plain;q=0.9", TEXT),
        ("application/openmetrics-text;q=nonsense", TEXT),
        (";;;,,=,q=,", TEXT),
    ],
)
def test_openmetrics_is_for_those_who_want_it_most(accept: str, format: exposition.Format) -> None:
    assert wanted(accept) == format


@pytest.mark.parametrize(
    ("header", "takes"),
    [("", False), ("gzip", True), ("br, GZip;q=0.5", True), ("gzip;q=0", False), ("*", True), ("identity", False),
     ("gzip;q=x", False), ("*;q=1, gzip;q=0", False)],
)  # fmt: skip
def test_gzip_is_for_those_who_take_it(header: str, takes: bool) -> None:
    assert takes_gzip(header) is takes


@settings(deadline=None)
@given(accept=st.text(max_size=40))
def test_no_header_is_too_odd(accept: str) -> None:
    assert wanted(accept) in (TEXT, OPENMETRICS)
    assert takes_gzip(accept) in (True, False)


# --- both parsers of the library judge both forms


@settings(deadline=None)
@given(
    label=st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12),
    value=st.floats(allow_nan=False, min_value=0),
    observed=st.lists(st.floats(0, 100), max_size=10),
)
def test_openmetrics_can_be_read_back(label: str, value: float, observed: list[float]) -> None:
    counter = CounterFamily("x_total", "Help.", ("a",), Room(10))
    counter.at(label).add(value)
    gauge = ReadFamily("g", "Help.", ("a",), lambda: [((label,), -value)])
    histogram = HistogramFamily("h", "Help.", ("a",), (0.1, 1, 10), Room(10), exemplars=True)
    for seconds in observed:
        histogram.at(label).observe(seconds)
        histogram.at(label).exemplify(Exemplar(TRACE_ID, seconds, 1_700_000_000.25))
    lines = [line for family in (counter, gauge, histogram) for line in family.lines(openmetrics=True)]
    text = "".join([*lines, exposition.END])
    read = samples(text)
    assert read["x_total", (("a", label),)] == value
    assert read["g", (("a", label),)] == -value
    if observed:
        assert read["h_count", (("a", label),)] == len(observed)
    buckets = [s for f in families(text) for s in f.samples if s.name == "h_bucket"]
    assert {s.exemplar.value for s in buckets if s.exemplar} <= set(observed)


@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_hostile_label_and_help_are_escaped(openmetrics: bool) -> None:
    family = CounterFamily("x_total", 'A\nhelp \\ with "all".', ("a", "b"), Room(10))
    family.at(HOSTILE, "%s %d %%").add()
    histogram = HistogramFamily("h", "Help.", ("a",), (1.0,), Room(10))
    histogram.at(f"%s{HOSTILE}%d%").observe(0.5)
    text = "".join([*family.lines(openmetrics=openmetrics), *histogram.lines(openmetrics=openmetrics)])
    assert text.count("# ") - text.count("# é") == 4
    found = families(text + exposition.END if openmetrics else text)
    assert found[0].documentation == 'A\nhelp \\ with "all".'
    assert found[0].samples[0].labels == {"a": HOSTILE, "b": "%s %d %%"}
    assert {s.labels["a"] for s in found[1].samples} == {f"%s{HOSTILE}%d%"}


def flown() -> Metrics:
    subject = Metrics(fleet())
    fly(subject, ttft_s=0.2, keep_reason="slow", trace_id=TRACE_ID)
    fly(subject, ttft_s=0.21)
    fly(subject, ttft_s=0.7, trace_id="f" * 32)
    return subject


def test_both_forms_say_the_same() -> None:
    subject = flown()
    ours = [name for name, _ in samples(subject.render()) if name.startswith("weir_")]
    text, openmetrics = samples(subject.render(TEXT)), samples(subject.render(OPENMETRICS))
    assert len(ours) > 200
    assert set(text) == set(openmetrics)
    assert {key: value for key, value in text.items() if key[0].startswith("weir_request")} == {
        key: value for key, value in openmetrics.items() if key[0].startswith("weir_request")
    }


def test_openmetrics_names_counters_without_their_suffix_and_ends_once() -> None:
    text = flown().render(OPENMETRICS)
    assert "# TYPE weir_requests counter\n" in text
    assert "# TYPE weir_requests_total" not in text
    assert text.count("# EOF\n") == 1
    assert text.endswith("# EOF\n")
    assert "_created" not in text
    assert "# TYPE weir_requests_total counter\n" in flown().render(TEXT)


def test_edges_are_written_as_floats() -> None:
    for format in (TEXT, OPENMETRICS):
        text = flown().render(format)
        assert 'le="1.0"' in text
        assert 'le="2.5"' in text
        assert 'le="1"' not in text


# --- exemplars

EXEMPLIFIED = {
    "weir_time_to_first_token_seconds_bucket",
    "weir_longest_token_gap_seconds_bucket",
    "weir_request_duration_seconds_bucket",
    "weir_endpoint_time_to_first_token_seconds_bucket",
}


def exemplars(text: str) -> dict[str, list[Any]]:
    """All exemplars, by the name of their samples."""
    found: dict[str, list[Any]] = {}
    for family in families(text):
        for sample in family.samples:
            if sample.exemplar:
                assert float(sample.labels["le"]) >= sample.exemplar.value
                found.setdefault(sample.name, []).append(sample.exemplar)
    return found


def test_an_exported_trace_is_an_exemplar_where_it_was_observed() -> None:
    found = exemplars(flown().render(OPENMETRICS))
    assert set(found) == EXEMPLIFIED
    for name, told in found.items():
        (exemplar,) = told
        assert exemplar.labels == {"trace_id": TRACE_ID}, name
        assert float(exemplar.timestamp) == 1_700_000_001.5
    assert found["weir_time_to_first_token_seconds_bucket"][0].value == pytest.approx(0.2)
    assert found["weir_request_duration_seconds_bucket"][0].value == pytest.approx(0.9)


def test_text_has_no_exemplars() -> None:
    assert TRACE_ID not in flown().render(TEXT)


def test_a_bucket_keeps_its_newest_exemplar() -> None:
    subject = Metrics(fleet())
    for n, ttft_s in enumerate((0.21, 0.22, 0.7)):
        fly(subject, ttft_s=ttft_s, keep_reason="slow", trace_id=f"{n:032x}", received_unix_s=1e9 + n)
    told = exemplars(subject.render(OPENMETRICS))["weir_time_to_first_token_seconds_bucket"]
    assert [(int(e.labels["trace_id"], 16), float(e.timestamp)) for e in told] == [(1, 1e9 + 2), (2, 1e9 + 3)]


@pytest.mark.parametrize("changes", [{"keep_reason": "slow"}, {"trace_id": TRACE_ID}, {}])
def test_a_trace_that_is_not_exported_is_no_exemplar(changes: dict[str, Any]) -> None:
    subject = Metrics(fleet())
    fly(subject, **changes)
    assert exemplars(subject.render(OPENMETRICS)) == {}


# --- over HTTP


@pytest.mark.parametrize("accept", [None, PROMETHEUS_2_42])
@pytest.mark.parametrize("encoding", [None, "gzip"])
async def test_a_scrape_gets_what_it_asks_for(accept: str | None, encoding: str | None) -> None:
    asked = [(name, value) for name, value in (("accept", accept), ("accept-encoding", encoding)) if value]
    async with ScriptedUpstream(chat_stream()) as u, running_gateway(config(u.url)) as gw:
        await gw.post(r0())
        await gw.outcome("ok")
        reply = await gw.get("/metrics", asked)
    assert reply.header("content-type") == (OPENMETRICS if accept else TEXT).content_type
    assert reply.header("content-encoding") == encoding
    assert reply.header("vary") == "accept, accept-encoding"
    text = (gzip.decompress(reply.body) if encoding else reply.body).decode()
    assert text.endswith("# EOF\n") is (accept is not None)
    assert samples(text)["weir_build_info", tuple(sorted(_build_labels(text).items()))] == 1


def _build_labels(text: str) -> dict[str, str]:
    (sample,) = [s for family in families(text) for s in family.samples if s.name == "weir_build_info"]
    return dict(sample.labels)
