"""What ``Retry-After`` says, and who is asked meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.retry_after import LONGEST_S, retry_after_s, soonest
from policies.types import EndpointSnapshot, PoolView, RouteQuery, eligible

NOW_UNIX_S = datetime(2026, 8, 21, 9, 33, 20, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("1.5", 1.5),
        ("3600", LONGEST_S),
        ("9" * 400, LONGEST_S),
        ("Fri, 21 Aug 2026 09:33:30 GMT", 10.0),
        ("Fri, 21 Aug 2026 09:33:30 -0000", 10.0),
        ("Fri, 21 Aug 2026 09:33:10 GMT", 0.0),
        ("Fri, 21 Aug 2026 19:33:10 GMT", LONGEST_S),
        ("", None),
        ("-1", None),
        ("soon", None),
        ("nan", None),
        ("1.2.3", None),
        ("01 Dec 99999999999 00:00:00 GMT", None),
        ("01 Dec 9999 00:00:00 -2359", LONGEST_S),
        ("01 Jan 0001 00:00:00 +2359", 0.0),
        ("\N{ARABIC-INDIC DIGIT SEVEN}", None),
    ],
)
def test_seconds_and_dates_are_read_and_nothing_else(value: str, wait_s: float | None) -> None:
    assert retry_after_s(value, NOW_UNIX_S) == wait_s


_PARTS = ("Tue,", "01", "Dec", "2026", "99999999999", "00:00:00", "1:2", "GMT", "+99999", "-0000", "am", ",", "(", "")


@settings(deadline=None)
@given(st.text() | st.lists(st.sampled_from(_PARTS)).map(" ".join))
def test_whatever_an_engine_says_is_a_bounded_wait_or_none(value: str) -> None:
    wait_s = retry_after_s(value, NOW_UNIX_S)
    assert wait_s is None or 0 <= wait_s <= LONGEST_S


def test_the_soonest_wait_is_in_whole_seconds_and_never_nothing() -> None:
    assert soonest((7.2, None, 30.0)) == "8"
    assert soonest((0.0,)) == "1"
    assert soonest((None,)) is None


def test_those_that_asked_for_patience_come_last() -> None:
    free = EndpointSnapshot("free", "healthy", 5)
    busy = EndpointSnapshot("busy", "healthy", 0, busy_until_s=11.0)
    over = EndpointSnapshot("over", "healthy", 0, busy_until_s=9.0)
    ejected = EndpointSnapshot("ejected", "ejected", 0)
    view = PoolView(10.0, 0, (free, busy, over, ejected))
    assert eligible(view, RouteQuery()) == [free, over]
    assert eligible(view, RouteQuery(frozenset({"free", "over"}))) == [busy]
    assert eligible(PoolView(10.0, 0, (busy, ejected)), RouteQuery()) == [busy]
