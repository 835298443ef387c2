"""Whose key a rule names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tracing.client_keys import ClientKeys

KEYS = ClientKeys(["sk-1", "sk-2", "sk-1", "sk-3"])


def test_keys_are_numbered_and_one_that_stands_there_twice_has_one_number() -> None:
    assert [KEYS.number(key) for key in ("sk-1", "sk-2", "sk-3")] == [1, 2, 3]
    assert (KEYS.any, ClientKeys([]).any) == (True, False)


@pytest.mark.parametrize(
    ("authorization", "number"),
    [
        (b"Bearer sk-2", 2),
        (b"bearer   sk-3 ", 3),
        (b"BEARER sk-1", 1),
        (b"Bearer sk-4", 0),
        (b"Bearer SK-1", 0),
        (b"Bearer sk-1,sk-2", 0),
        (b"Bearer", 0),
        (b"Basic sk-1", 0),
        (b"sk-1", 0),
        (b"", 0),
        (None, 0),
    ],
)
def test_a_bearers_key_is_known_whatever_the_scheme_is_spelt_like(authorization: bytes | None, number: int) -> None:
    assert KEYS.sent(authorization) == number


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: b"Bearer " + tail))
def test_whatever_else_is_sent_is_no_rules_key(authorization: bytes) -> None:
    known = {b"Bearer sk-1", b"Bearer sk-2", b"Bearer sk-3"}
    assert KEYS.sent(authorization) == 0 or b" ".join(authorization.split()) in known


def test_no_key_is_held() -> None:
    assert "sk-" not in repr(vars(KEYS))
