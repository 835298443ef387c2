"""The time model, in virtual time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.simulator.batching import Batch, Pace, Token

PACE = Pace(ttft_s=0.05, itl_s=0.02, slots=8, prefill_tokens_per_s=4000, batch_knee=8)
Arrival = tuple[float, int, int]  # seconds, prompt tokens, output tokens


def run(pace: Pace, arrivals: list[Arrival], seed: int = 0) -> list[list[float]]:
    """Returns, for each arrival, when its tokens came."""
    batch, tokens = Batch(pace, seed), list[Token]()
    for at_s, prompt_tokens, output_tokens in arrivals:
        tokens += batch.advance(at_s)
        batch.submit(at_s, prompt_tokens, output_tokens)
    while (next_s := batch.next_s()) is not None:
        tokens += batch.advance(next_s)
    return [[token.at_s for token in tokens if token.sequence == number] for number in range(len(arrivals))]


def gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


def test_a_request_alone_waits_for_the_fixed_time_and_its_prefill_and_then_gets_a_token_each_step() -> None:
    [times] = run(PACE, [(10.0, 400, 5)])
    assert times[0] == pytest.approx(10.0 + 0.05 + 400 / 4000)
    assert gaps(times) == pytest.approx([0.02] * 4)


def test_a_prompt_of_many_chunks_takes_as_long_as_its_tokens() -> None:
    [times] = run(PACE, [(0.0, 8000, 1)])
    assert times == pytest.approx([0.05 + 2.0])


def test_decoding_keeps_its_pace_up_to_the_knee_and_slows_down_in_proportion_above_it() -> None:
    pace = Pace(ttft_s=0, itl_s=0.02, slots=16, prefill_tokens_per_s=1e9, batch_knee=4)
    at_knee = run(pace, [(0.0, 1, 10)] * 4)
    above = run(pace, [(0.0, 1, 10)] * 12)
    assert gaps(at_knee[0]) == pytest.approx([0.02] * 9, abs=1e-6)
    assert gaps(above[0])[1:] == pytest.approx([0.06] * 8, abs=1e-6)  # in the first step one decodes, eleven prefill


def test_what_finds_no_slot_waits_for_one_in_the_order_of_arrival() -> None:
    pace = Pace(ttft_s=0.1, itl_s=0.02, slots=1, prefill_tokens_per_s=1e9)
    first, second, third = run(pace, [(0.0, 1, 10), (0.0, 1, 10), (0.0, 1, 10)])
    assert second[0] == pytest.approx(first[-1] + 0.1, abs=1e-6)
    assert third[0] == pytest.approx(second[-1] + 0.1, abs=1e-6)


def test_running_and_waiting_count_slots_and_queue() -> None:
    batch = Batch(Pace(slots=2))
    for _ in range(5):
        batch.submit(0.0, 10, 10)
    assert (batch.running, batch.waiting) == (2, 3)


def test_a_long_prompt_makes_the_others_wait_by_one_chunk_a_token_and_no_more() -> None:
    pace = Pace(ttft_s=0, itl_s=0.02, prefill_tokens_per_s=4000, chunk_tokens=256)
    short, _ = run(pace, [(0.0, 1, 200), (1.0, 4096, 1)])
    slow = [gap for gap in gaps(short) if gap > 0.021]
    assert len(slow) == 4096 // 256
    assert max(slow) == pytest.approx(0.02 + 256 / 4000)


def test_an_aborted_sequence_gets_no_more_tokens_and_its_slot_is_taken_at_once() -> None:
    batch = Batch(Pace(ttft_s=0, itl_s=0.02, slots=1))
    first, second = batch.submit(0.0, 1, 100), batch.submit(0.0, 1, 1)
    assert {token.sequence for token in batch.advance(0.1)} == {first}
    batch.abort(0.1, first)
    assert (batch.running, batch.waiting) == (1, 0)
    assert [token.sequence for token in batch.advance(10.0)] == [second]
    batch.abort(10.0, first)
    assert batch.next_s() is None


def test_an_aborted_waiting_sequence_leaves_the_queue() -> None:
    batch = Batch(Pace(slots=1))
    batch.submit(0.0, 1, 1)
    batch.abort(0.0, batch.submit(0.0, 1, 1))
    assert (batch.running, batch.waiting) == (1, 0)


def test_the_cache_holds_what_running_sequences_have_prefilled_and_generated() -> None:
    batch = Batch(Pace(ttft_s=0, itl_s=0.02, prefill_tokens_per_s=1e9))
    batch.submit(0.0, 100, 50)
    batch.advance(0.1)
    assert 101 <= batch.cached_tokens <= 107
    batch.advance(10.0)
    assert batch.cached_tokens == 0


def test_an_interval_of_zero_gives_all_tokens_at_once() -> None:
    [times] = run(Pace(ttft_s=0, itl_s=0, prefill_tokens_per_s=1000), [(0.0, 1, 50)])
    assert times == [0.001] * 50


def test_jitter_varies_each_step_within_its_share_and_follows_the_seed() -> None:
    pace = Pace(ttft_s=0, itl_s=0.02, jitter_ratio=0.5)
    [one], [same], [other] = (run(pace, [(0.0, 1, 100)], seed) for seed in (1, 1, 2))
    assert one == same != other
    assert all(0.0099 < gap < 0.0301 for gap in gaps(one))
    assert len({round(gap, 6) for gap in gaps(one)}) > 50


ARRIVALS = st.lists(st.tuples(st.floats(0, 5), st.integers(1, 2000), st.integers(1, 40)), min_size=1, max_size=12).map(
    sorted
)
PACES = st.builds(
    Pace,
    ttft_s=st.floats(0, 0.2),
    itl_s=st.floats(0, 0.05),
    slots=st.integers(1, 6),
    prefill_tokens_per_s=st.floats(500, 50_000),
    batch_knee=st.integers(1, 6),
    jitter_ratio=st.floats(0, 0.9),
    chunk_tokens=st.integers(1, 600),
)


@given(pace=PACES, arrivals=ARRIVALS)
def test_every_sequence_gets_all_its_tokens_in_order_and_none_too_soon(pace: Pace, arrivals: list[Arrival]) -> None:
    for (at_s, _, output_tokens), times in zip(arrivals, run(pace, arrivals), strict=True):
        assert len(times) == output_tokens
        assert times == sorted(times)
        assert times[0] >= at_s + pace.ttft_s


@given(pace=PACES, arrivals=ARRIVALS, looks_s=st.lists(st.floats(0, 20), max_size=20).map(sorted))
def test_how_often_the_clock_is_looked_at_does_not_matter(
    pace: Pace, arrivals: list[Arrival], looks_s: list[float]
) -> None:
    one, often = Batch(pace), Batch(pace)
    for batch in (one, often):
        for _, prompt_tokens, output_tokens in arrivals:
            batch.submit(0.0, prompt_tokens, output_tokens)
    tokens: list[Token] = []
    for look_s in [*looks_s, 1e9]:
        tokens += often.advance(look_s)
    assert tokens == one.advance(1e9)
