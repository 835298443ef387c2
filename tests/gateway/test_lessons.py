"""What a closed attempt teaches."""

from __future__ import annotations

import pytest

from adapters.types import Usage
from gateway.lessons import MOST_TOKENS_PER_S, answered
from tests.fakes.flight_records import attempt, flight


@pytest.mark.parametrize("absurd", [2**32 - 1, 2**53])
def test_a_count_of_tokens_that_no_answer_can_have_teaches_nothing(absurd: int) -> None:
    for counted, learnt in ((500, 500), (MOST_TOKENS_PER_S, MOST_TOKENS_PER_S), (absurd, 11)):
        tried = attempt(sent_s=1.0, first_output_s=1.5, ended_s=2.5)
        tried.chunks = 11
        sample = answered(tried, flight(tried, usage=Usage(100, counted), last_output_s=2.5))
        assert sample is not None
        assert sample.output_tokens == learnt
