"""Which traces are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from policies.sampling import (
    UNBOUNDED,
    ClassRule,
    HeadSampling,
    KeepReason,
    KeepRules,
    PerSecond,
    TraceFacts,
    keep_reason,
)

USUAL = TraceFacts(False, "m", "m", False, 1, 0.1, 1.0, 0.05)
SECONDS = st.floats(0, 1e4)
FACTS = st.builds(
    TraceFacts,
    sampled=st.booleans(),
    pool=st.sampled_from(["m", "n"]),
    model=st.sampled_from(["m", "alias"]),
    failed=st.booleans(),
    attempts=st.integers(0, 4),
    ttft_s=st.none() | SECONDS,
    duration_s=SECONDS,
    longest_gap_s=SECONDS,
    headers=st.lists(st.sampled_from([(b"x-team", b"a"), (b"x-team", b"b"), (b"x-tier", b"1")])).map(tuple),
    prompt_tokens=st.integers(0, 20_000),
    tokens=st.integers(0, 40_000),
    key=st.integers(0, 3),
)
CLASSES = st.builds(
    ClassRule,
    pool=st.sampled_from([None, "m", "n"]),
    model=st.sampled_from([None, "m", "alias"]),
    headers=st.sampled_from([(), ((b"x-team", b"a"),), ((b"x-team", b"a"), (b"x-tier", b"1"))]),
    min_prompt_tokens=st.integers(0, 20_000),
    min_tokens=st.integers(0, 40_000),
    key=st.integers(0, 3),
)
RULES = st.builds(KeepRules, SECONDS, SECONDS, SECONDS, st.lists(CLASSES, max_size=3).map(tuple))


@given(FACTS, RULES)
def test_what_an_operator_asked_for_is_always_kept_and_everything_has_a_known_reason(
    facts: TraceFacts, rules: KeepRules
) -> None:
    reason = keep_reason(facts, rules)
    assert reason is None or reason in get_args(KeepReason)
    assert (reason == "head") == facts.sampled
    if not facts.sampled:
        assert (reason == "rule") == any(rule.matches(facts) for rule in rules.classes)
    if reason is None:
        assert not facts.failed
        assert facts.attempts <= 1


@given(FACTS, RULES, CLASSES)
def test_one_more_rule_never_loses_a_trace(facts: TraceFacts, rules: KeepRules, rule: ClassRule) -> None:
    if keep_reason(facts, rules) is not None:
        assert keep_reason(facts, replace(rules, classes=(*rules.classes, rule))) is not None


@given(FACTS, CLASSES)
def test_more_tokens_never_lose_a_trace(facts: TraceFacts, rule: ClassRule) -> None:
    if rule.matches(facts):
        assert rule.matches(facts._replace(prompt_tokens=facts.prompt_tokens + 1, tokens=facts.tokens + 1))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"sampled": True, "failed": True}, "head"),
        ({"failed": True, "attempts": 2}, "error"),
        ({"attempts": 2}, "retry"),
        ({"ttft_s": 2.1}, "slow_ttft"),
        ({"ttft_s": 2.0}, None),
        ({"ttft_s": None, "duration_s": 9.0}, None),
        ({"duration_s": 31.0}, "slow"),
        ({"longest_gap_s": 1.5}, "stall"),
    ],
)
def test_each_reason(change: dict[str, object], reason: str | None) -> None:
    assert keep_reason(USUAL._replace(**change), KeepRules(slow_s=30.0)) == reason  # type: ignore[arg-type]


def test_payments_above_ten_thousand_tokens_are_all_kept() -> None:
    rules = KeepRules(classes=(ClassRule(headers=((b"x-team", b"payments"),), min_tokens=10_000),))
    payments = USUAL._replace(headers=((b"host", b"h"), (b"x-team", b"payments")), tokens=10_000)
    assert keep_reason(payments, rules) == "rule"
    assert "rule" in UNBOUNDED
    assert keep_reason(payments._replace(tokens=9_999), rules) is None
    assert keep_reason(payments._replace(headers=((b"x-team", b"Payments"),)), rules) is None


def test_every_request_of_a_key_is_kept() -> None:
    rules = KeepRules(classes=(ClassRule(key=2),))
    assert [keep_reason(USUAL._replace(key=key), rules) for key in (0, 1, 2)] == [None, None, "rule"]
    rules = KeepRules(classes=(ClassRule(key=2, min_tokens=10),))
    assert keep_reason(USUAL._replace(key=2, tokens=9), rules) is None


@given(st.floats(0, 1), st.integers(1, (1 << 128) - 1))
def test_a_share_is_the_one_that_the_sdk_takes(ratio: float, trace_id: int) -> None:
    taken = (trace_id & ((1 << 64) - 1)) < HeadSampling(ratio).bound
    decision = TraceIdRatioBased(ratio).should_sample(None, trace_id, "x").decision
    assert taken == (decision is Decision.RECORD_AND_SAMPLE)


@given(st.integers(1, 50), st.lists(st.floats(0, 0.5), max_size=200))
def test_no_more_pass_in_any_time_than_may(most: int, waits_s: list[float]) -> None:
    bound, now_s, passed_s = PerSecond(most), 100.0, list[float]()
    for wait_s in waits_s:
        now_s += wait_s
        if bound.take(now_s):
            passed_s.append(now_s)
    for i, first_s in enumerate(passed_s):
        for j in range(i, len(passed_s)):
            assert j - i + 1 <= most + (passed_s[j] - first_s) * most + 1e-6


def test_as_many_as_may_pass_at_once_after_a_pause() -> None:
    bound = PerSecond(3)
    assert [bound.take(5.0) for _ in range(4)] == [True, True, True, False]
    assert bound.take(5.34)
