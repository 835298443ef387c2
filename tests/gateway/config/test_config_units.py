"""Durations and sizes, as people write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.units import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    format_duration,
    format_size,
    parse_duration_s,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "duration_s"), [("500ms", 0.5), ("2s", 2.0), ("1.5s", 1.5), ("30m", 1800.0), ("1h", 3600.0), ("0", 0.0)]
)
def test_a_duration_is_read_in_seconds(text: str, duration_s: float) -> None:
    assert parse_duration_s(text) == duration_s


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("512B", 512),
        ("256KiB", 262_144),
        ("64MiB", 67_108_864),
        ("10MB", 10_000_000),
        ("1.5GiB", 1_610_612_736),
        ("0", 0),
    ],
)
def test_a_size_is_read_in_bytes(text: str, size_bytes: int) -> None:
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["2", "2.5", "10"])
def test_a_bare_number_needs_a_unit(text: str) -> None:
    with pytest.raises(ValueError, match="needs a unit, for example 2s"):
        parse_duration_s(text)
    with pytest.raises(ValueError, match="needs a unit, for example 64MiB"):
        parse_size_bytes(text)


@pytest.mark.parametrize("text", ["2sec", "2 s", "1m30s", "-1s", "s", "", "1e3s", "٣s", "1,5s"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="for example 2s"):
        parse_duration_s(text)


@pytest.mark.parametrize("text", ["64mb", "64M", "64 MiB", "-1B", "MiB", ""])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="for example 64MiB"):
        parse_size_bytes(text)


@given(st.integers(1, 10**9))
def test_a_duration_that_was_written_is_read_back(duration_ms: int) -> None:
    assert parse_duration_s(format_duration(duration_ms / 1000)) == duration_ms / 1000


@given(st.integers(1, 2**40))
def test_a_size_that_was_written_is_read_back(size_bytes: int) -> None:
    assert parse_size_bytes(format_size(size_bytes)) == size_bytes


@given(st.from_regex(DURATION_PATTERN, fullmatch=True, alphabet=st.characters(codec="ascii")))
def test_every_duration_the_schema_allows_is_read(text: str) -> None:
    assert parse_duration_s(text) >= 0


@given(st.text(alphabet="0123456789.hmsKMGiB ", max_size=8))
def test_the_schema_allows_every_text_that_is_read(text: str) -> None:
    for parse, pattern in ((parse_duration_s, DURATION_PATTERN), (parse_size_bytes, SIZE_PATTERN)):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert value == 0 or re.search(pattern, text.strip())
