"""Several workers' numbers as each of them tells them: files written by one, read by all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config import MetricsConfig
from gateway.fleet import Fleet
from gateway.instruments.exposition import OPENMETRICS
from gateway.instruments.histogram import TTFT, Exemplar, Histogram
from gateway.instruments.number_file import NumberFile, SharedHistogram, index_path, tell_death, values_path
from gateway.instruments.worker_numbers import Seat, WorkerNumbers
from gateway.metrics import Metrics
from tests.fakes.flown import TRACE_ID, fleet, fly, record, samples, total

Folders = pytest.TempPathFactory


@pytest.fixture(scope="session")
def folders(tmp_path_factory: Folders) -> Folders:
    """For tests that need a folder for each example."""
    return tmp_path_factory


def worker(folder: Path, number: int, count: int = 2, *, of: Fleet | None = None, max_series: int = 5000) -> Metrics:
    """A worker's metrics, as they are when it begins to serve."""
    numbers = WorkerNumbers(Seat(number, count, folder))
    metrics = Metrics(of or fleet(), options=MetricsConfig(max_series=max_series), workers=numbers)
    metrics.publish()
    return metrics


def test_each_worker_tells_the_numbers_of_all(tmp_path: Path) -> None:
    workers = [worker(tmp_path, n, 3) for n in range(3)]
    for n, metrics in enumerate(workers):
        for _ in range(n + 1):
            fly(metrics, ttft_s=0.2)
    workers[2].observe((record(outcome="timeout"),))
    for metrics in workers:
        read = samples(metrics.render())
        assert total(read, "weir_requests_total", outcome="ok") == 1 + 2 + 3
        assert total(read, "weir_requests_total", outcome="timeout") == 1
        assert total(read, "weir_time_to_first_token_seconds_count") == 6
        assert total(read, "weir_time_to_first_token_seconds_sum") == pytest.approx(6 * 0.2)
        assert total(read, "weir_time_to_first_token_seconds_bucket", le="0.25") == 6
        assert total(read, "weir_tokens_total", type="output") == 24
        assert total(read, "weir_workers") == 3


def test_what_is_new_since_the_last_scrape_is_told(tmp_path: Path) -> None:
    first, second = worker(tmp_path, 0), worker(tmp_path, 1)
    assert total(samples(first.render()), "weir_requests_total") == 0
    for outcome in ("ok", "timeout", "shed"):
        second.observe((record(outcome=outcome),))
        assert total(samples(first.render()), "weir_requests_total", outcome=outcome) == 1


@settings(deadline=None, max_examples=30)
@given(values=st.lists(st.tuples(st.floats(0, 1000), st.booleans()), max_size=40))
def test_two_workers_count_as_one_would(values: list[tuple[float, bool]], folders: Folders) -> None:
    folder = folders.mktemp("numbers")
    alone = Metrics(fleet())
    workers = worker(folder, 0), worker(folder, 1)
    for ttft_s, which in values:
        fly(alone, ttft_s=ttft_s)
        fly(workers[which], ttft_s=ttft_s)
    expected = {k: v for k, v in samples(alone.render()).items() if k[0].startswith("weir_time") and v}
    for metrics in workers:
        read = {k: v for k, v in samples(metrics.render()).items() if k[0].startswith("weir_time") and v}
        assert read == pytest.approx(expected)


@settings(deadline=None, max_examples=30)
@given(values=st.lists(st.tuples(st.floats(0, 10), st.integers(0, 2)), max_size=30))
def test_all_workers_tell_the_same_to_the_last_digit(values: list[tuple[float, int]], folders: Folders) -> None:
    """A sum that one told smaller than another would look like a counter that began anew."""
    folder = folders.mktemp("numbers")
    workers = [worker(folder, n, 3) for n in range(3)]
    for ttft_s, which in values:
        fly(workers[which], ttft_s=ttft_s)
    told = [{k: v for k, v in samples(metrics.render()).items() if k[0].startswith("weir_")} for metrics in workers]
    for read in told:
        del read["weir_engine_sample_age_seconds", (("endpoint", "e0"),)], read["weir_metrics_series", ()]
    assert {k: v for k, v in told[0].items() if v == v} == {k: v for k, v in told[1].items() if v == v}
    assert {k: v for k, v in told[0].items() if v == v} == {k: v for k, v in told[2].items() if v == v}


def test_a_counter_that_is_read_elsewhere_does_not_go_down_from_one_worker_to_the_next(tmp_path: Path) -> None:
    of = fleet()
    first, second = worker(tmp_path, 0, of=of), worker(tmp_path, 1)
    of.pools["m"].endpoints["e0"].transitions["ejected"] = 1
    for metrics in (first, second, first):
        assert total(samples(metrics.render()), "weir_endpoint_transitions_total", to="ejected") == 1


# --- the dead, and those that take their place


def test_counters_of_the_dead_stay_and_their_gauges_go(tmp_path: Path) -> None:
    dying_fleet = fleet()
    dying, other = worker(tmp_path, 0, of=dying_fleet), worker(tmp_path, 1)
    fly(dying)
    dying_fleet.pools["m"].in_flight = 3
    dying_fleet.pools["m"].endpoints["e0"].transitions["ejected"] = 2
    dying.publish()
    read = samples(other.render())
    assert total(read, "weir_requests_in_flight") == 3
    tell_death(tmp_path, 0)
    read = samples(other.render())
    assert total(read, "weir_requests_total") == 1
    assert total(read, "weir_endpoint_transitions_total", to="ejected") == 2
    assert total(read, "weir_requests_in_flight") == 0
    assert total(read, "weir_workers") == 1


def test_whoever_takes_a_dead_ones_place_counts_on(tmp_path: Path) -> None:
    dying_fleet = fleet()
    dying, other = worker(tmp_path, 0, of=dying_fleet), worker(tmp_path, 1)
    fly(dying, keep_reason="slow", trace_id=TRACE_ID)
    dying_fleet.pools["m"].in_flight = 3
    dying_fleet.pools["m"].endpoints["e0"].transitions["ejected"] = 2
    dying.publish()
    before = samples(other.render())
    tell_death(tmp_path, 0)
    new_fleet = fleet()
    new = worker(tmp_path, 0, of=new_fleet)
    for metrics in (new, other):
        read = samples(metrics.render())
        assert {k: v for k, v in before.items() if k[0].endswith("_total") and k[0].startswith("weir")} == {
            k: v for k, v in read.items() if k[0].endswith("_total") and k[0].startswith("weir")
        }
        assert total(read, "weir_requests_in_flight") == 0
        assert TRACE_ID in metrics.render(OPENMETRICS)
    fly(new)
    new_fleet.pools["m"].endpoints["e0"].transitions["ejected"] = 1
    new.publish()
    for metrics in (new, other):
        read = samples(metrics.render())
        assert total(read, "weir_requests_total") == 2
        assert total(read, "weir_endpoint_transitions_total", to="ejected") == 3
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("torn", [b"[", b'["weir_requests_total",["m","m","chat","timeo'])
def test_half_a_line_that_a_killed_worker_left_spoils_nothing(torn: bytes, tmp_path: Path) -> None:
    dying, other = worker(tmp_path, 0), worker(tmp_path, 1)
    fly(dying)
    with index_path(tmp_path, 0).open("ab") as index:
        index.write(torn)
    assert total(samples(other.render()), "weir_requests_total") == 1
    new = worker(tmp_path, 0)
    new.observe((record(outcome="timeout"),))
    for metrics in (new, other):
        read = samples(metrics.render())
        assert total(read, "weir_requests_total", outcome="ok") == 1
        assert total(read, "weir_requests_total", outcome="timeout") == 1


def test_a_worker_that_has_not_begun_is_none(tmp_path: Path) -> None:
    first = worker(tmp_path, 0, 4)
    fly(first)
    read = samples(first.render())
    assert total(read, "weir_requests_total") == 1
    assert total(read, "weir_workers") == 1


def test_the_death_of_one_that_never_began_is_nothing(tmp_path: Path) -> None:
    tell_death(tmp_path, 5)
    assert list(tmp_path.iterdir()) == []


# --- exemplars of several workers


def test_the_newest_exemplar_of_all_workers_is_told(tmp_path: Path) -> None:
    workers = [worker(tmp_path, n, 3) for n in range(3)]
    for n, at_s in enumerate((5, 9, 7)):
        fly(workers[n], ttft_s=0.2, keep_reason="slow", trace_id=f"{n:032x}", received_unix_s=1e9 + at_s)
    for metrics in workers:
        text = metrics.render(OPENMETRICS)
        samples(text)
        lines = [line for line in text.splitlines() if " # {" in line]
        assert lines
        assert all(f'trace_id="{1:032x}"' in line for line in lines)


# --- one file


@settings(deadline=None, max_examples=30)
@given(values=st.lists(st.floats(0, 2000), max_size=30), n=st.integers(1, 5))
def test_a_shared_histogram_counts_as_any(values: list[float], n: int, folders: Folders) -> None:
    file = NumberFile(folders.mktemp("numbers"), 0)
    shared = file.histogram("h", (), TTFT, exemplars=True)
    plain = Histogram(TTFT)
    assert list(shared.exemplars()) == []
    for at_s, value in enumerate(values, start=1):
        for histogram in (shared, plain):
            histogram.observe(value)
            histogram.observe_n(value, n)
            histogram.observe_all(values)
            histogram.sums[0] += 1.5
            histogram.exemplify(Exemplar(TRACE_ID, value, float(at_s)))
    assert list(shared.counts) == list(plain.counts)
    assert shared.sums[0] == plain.sums[0]
    assert list(shared.exemplars()) == list(plain.exemplars())


def test_an_exemplar_that_is_being_replaced_is_not_told(tmp_path: Path) -> None:
    shared = NumberFile(tmp_path, 0).histogram("h", (), (1.0,), exemplars=True)
    shared.exemplify(Exemplar(TRACE_ID, 0.5, 100.0))
    shared.exemplify(Exemplar(TRACE_ID, 2.0, 0.0))  # as far as a killed worker may get
    assert list(shared.exemplars()) == [Exemplar(TRACE_ID, 0.5, 100.0), None]
    assert shared.exemplar(0, 99.0) is None


def test_more_series_than_a_chunk_holds_do_not_overlap(tmp_path: Path) -> None:
    file = NumberFile(tmp_path, 0)
    made = [file.histogram("h", (str(n),), TTFT, exemplars=True) for n in range(300)]
    numbers = [file.value("x_total", (str(n),)) for n in range(300)]
    for n, (histogram, number) in enumerate(zip(made, numbers, strict=True)):
        histogram.observe_n(0.3, n)
        number.add(1000 + n)
    again = NumberFile(tmp_path, 0)
    assert len(again.restored) == 600
    for n in range(300):
        assert sum(again.histogram("h", (str(n),), TTFT, exemplars=True).counts) == n
        assert again.value("x_total", (str(n),)).value == 1000 + n
    assert os.path.getsize(values_path(tmp_path, 0)) > 300 * 141 * 8


def test_on_a_full_disk_a_worker_counts_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(file: int, at: int, size: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    first, second = worker(tmp_path, 0), worker(tmp_path, 1)
    fly(first)
    monkeypatch.setattr(os, "posix_fallocate", full)
    for n in range(200):
        first.observe((record(pool=f"p{n}", model=f"m{n}"),))
    assert total(samples(first.render()), "weir_requests_total") == 201
    assert 1 <= total(samples(second.render()), "weir_requests_total") < 201
    assert caplog.text.count("No space left on device") == 1


def test_without_room_on_the_disk_no_worker_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, at: int, size: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        NumberFile(tmp_path, 0)


def test_the_cap_holds_with_several_workers(tmp_path: Path) -> None:
    workers = [worker(tmp_path, n, max_series=40) for n in range(2)]
    for n in range(100):
        for metrics in workers:
            metrics.observe((record(pool=f"p{n}", model=f"m{n}"),))
    for metrics in workers:
        read = samples(metrics.render())
        assert total(read, "weir_requests_total") == 200
        assert len([key for key in read if key[0] == "weir_requests_total"]) <= 80
        assert total(read, "weir_metrics_series_dropped_total") > 0


def test_shared_histograms_are_what_workers_write_to(tmp_path: Path) -> None:
    assert isinstance(worker(tmp_path, 0).endpoint("m", "m", "e0").gaps, SharedHistogram)
    assert isinstance(Metrics(fleet()).endpoint("m", "m", "e0").gaps, Histogram)
