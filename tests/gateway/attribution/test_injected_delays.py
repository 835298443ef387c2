"""A delay that was put into one phase of a real request is found in that phase, and named. ``bench/attribution.py``
counts how often, with a hundred of each."""

from __future__ import annotations

import pytest

from tests.fakes.delays import DELAY_S, KINDS, held_up


@pytest.mark.parametrize("kind", KINDS)
async def test_a_delay_is_found_where_it_was(kind: str) -> None:
    phase = KINDS[kind][0]
    async with held_up(kind) as explained:
        told = [await explained(f"r{n}") for n in range(4 if phase == "retries" else 1)]
    for one in told:
        assert sum(part["duration_s"] for part in one["phases"]) == pytest.approx(one["duration_s"])
    longest = max(
        told, key=lambda one: len(one["attempts"])
    )  # of an attempt that fails, half of the requests know nothing
    assert longest["outcome"] == "ok"
    found_s = {part["name"]: part["duration_s"] for part in longest["phases"]}
    assert found_s.get(phase, 0.0) >= 0.95 * DELAY_S, longest
