"""What the log and ``/weir/endpoints`` say of an endpoint's health: short words of ours, and not again and again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.config import Config
from gateway.endpoint import Endpoint
from gateway.pool import REASON_CHARS, Pool


def pool(endpoints: int = 1, failures: int = 1, successes: int = 1) -> tuple[Pool, list[Endpoint]]:
    urls = [f"http://127.0.0.1:{port}" for port in range(1, endpoints + 1)]
    health = {"failures": failures, "successes": successes}
    made = Config.model_validate({"pools": {"m": {"endpoints": urls, "health": health}}})
    subject = Pool(made.pools["m"])
    return subject, list(subject.endpoints.values())


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


FAILURES: dict[str, Callable[[Pool, Endpoint], None]] = {
    "request": lambda p, e: p.failed(e, "500"),
    "probe": lambda p, e: p.probed(e, "probe failed: connect"),
    "credential": lambda p, e: p.refused_credential(e),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_the_last_endpoint_is_told_of_once(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    subject, (endpoint,) = pool()
    for _ in range(50):
        FAILURES[kind](subject, endpoint)
    assert endpoint.healthy
    told = lines(caplog)
    assert sum("is the last of pool m" in line for line in told) == 1
    assert len(told) == (2 if kind == "credential" else 1)


def test_reasons_that_take_turns_are_told_of_once_each(caplog: pytest.LogCaptureFixture) -> None:
    subject, (endpoint,) = pool()
    for _ in range(20):
        for kind in FAILURES:
            FAILURES[kind](subject, endpoint)
    assert len(lines(caplog)) == 4


def test_good_probes_do_not_make_failing_requests_news(caplog: pytest.LogCaptureFixture) -> None:
    subject, (endpoint,) = pool()
    for _ in range(20):
        subject.refused_credential(endpoint)
        subject.probed(endpoint, None)
    assert len(lines(caplog)) == 2


@pytest.mark.parametrize("kind", ["request", "probe"])
def test_it_is_told_again_after_the_endpoint_did_well(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    subject, (endpoint,) = pool(failures=2)
    for _ in range(3):
        for _ in range(5):
            FAILURES[kind](subject, endpoint)
        if kind == "request":
            subject.succeeded(endpoint)
        else:
            subject.probed(endpoint, None)
    assert len(lines(caplog)) == 3


def test_it_is_told_when_it_is_ejected_after_all(caplog: pytest.LogCaptureFixture) -> None:
    subject, (one, two) = pool(2)
    subject.failed(two, "500")
    subject.failed(one, "500")
    subject.failed(one, "500")
    assert len(lines(caplog)) == 2
    two.health = one.health  # it is well again
    subject.failed(one, "500")
    assert lines(caplog)[2:] == ["endpoint m-0 ejected: 500"]


@pytest.mark.parametrize("reason", ["x" * 10_000, "a\n2026-01-01 CRITICAL weir: b", "\ud800", "\x1b[2J", "\u2028"])
def test_a_reason_is_one_short_line(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    subject, (one, two) = pool(2)
    subject.failed(one, reason)
    assert len(one.health.reason) <= REASON_CHARS
    assert one.health.reason.isprintable()
    assert all(line.isprintable() for line in lines(caplog))
    subject.probed(two, reason)
    assert all(line.isprintable() for line in lines(caplog))


def test_one_that_is_called_back_and_still_out_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    subject, (one, two) = pool(2, successes=2)
    subject.failed(two, "500")
    subject.probed(two, None)
    for _ in range(50):
        subject.failed(one, "500")
    assert two.health.name == "ejected"
    assert len(lines(caplog)) == 2


def test_a_draining_one_that_fails_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    subject, (_, two) = pool(2)
    subject.drain(two)
    told = len(caplog.records)
    subject.failed(two, "500")
    assert two.health.ejected_until_s is not None
    assert len(caplog.records) == told
