"""A choice is told with what it was made from, as far as there is room for it."""

from __future__ import annotations

from gateway.choosing import chosen
from gateway.config import Config
from gateway.pool import Pool
from policies.sampling import PerSecond
from policies.types import NO_QUERY


def pool() -> Pool:
    config = Config.model_validate({"pools": {"m": {"endpoints": ["http://127.0.0.1:9", "http://127.0.0.1:10"]}}})
    return Pool(config.pools["m"])


def test_what_a_choice_was_made_from_makes_the_same_choice_again() -> None:
    subject = pool()
    attempt = chosen(subject, NO_QUERY, 0.0)
    assert attempt is not None
    assert attempt.decision is not None
    again = subject.choose(*attempt.decision)
    assert again is not None
    assert (again.endpoint_id, again.reason) == (attempt.endpoint_id, attempt.reason)


def test_where_choices_are_many_most_are_told_without_it() -> None:
    subject = pool()
    subject.notes = PerSecond(1)
    attempts = [chosen(subject, NO_QUERY, 0.0) for _ in range(50)]
    noted = [attempt for attempt in attempts if attempt is not None and attempt.decision is not None]
    assert all(attempts)
    assert 1 <= len(noted) < 50
