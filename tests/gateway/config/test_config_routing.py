"""What the file says of routing: read whole, and every mistake told."""

from __future__ import annotations

import pytest

from gateway.config.file import parse
from gateway.config.models import CanaryConfig, PoolConfig, RoutingRuleConfig, RuleConditionsConfig
from gateway.config.problems import ConfigError

PLAIN = "http://a"
LABELLED = "{url: http://b, label: long}"


def read(routing: str, *endpoints: str) -> PoolConfig:
    listed = ", ".join(endpoints or (PLAIN, LABELLED))
    text = f"pools:\n  m:\n    aliases: [big]\n    endpoints: [{listed}]\n    routing: {routing}\n"
    return parse(text, "weir.yaml", {}).pools["m"]


def mistake(routing: str, *endpoints: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(routing, *endpoints)
    (line,) = caught.value.lines()
    return line


def test_everything_that_can_be_said() -> None:
    pool = read(
        "{policy: session, header: X-Chat, canary: {label: long, share: 0.05}, rules: ["
        "{when: {header: {X-Team: a}, model: big, min_prompt_tokens: 1, max_prompt_tokens: 9}, to: long}, {to: long}]}",
        "{url: http://a, overflow_at: 8, tier: 0}",
        "{url: http://b, label: long, tier: 2}",
    )
    assert (pool.routing.policy, pool.routing.header) == ("session", "x-chat")
    assert pool.routing.canary == CanaryConfig(label="long", share=0.05)
    when = RuleConditionsConfig(header={"x-team": "a"}, model="big", min_prompt_tokens=1, max_prompt_tokens=9)
    assert pool.routing.rules == (RoutingRuleConfig(when=when, to="long"), RoutingRuleConfig(to="long"))
    assert [(e.label, e.tier, e.overflow_at) for e in pool.endpoints] == [(None, 0, 8), ("long", 2, None)]


@pytest.mark.parametrize(
    ("routing", "says"),
    [
        ("{policy: fastest}", "routing.policy: must be latency or least_in_flight or peak_ewma or "),
        ("{policy: round-robin}", "routing.policy: must be "),
        ("{header: Authorization}", "routing.header: carries credentials: name another header"),
        ("{header: a b}", "routing.header: is no header name"),
        ("{rules: [{to: other}]}", 'routing: names the label "other", which no endpoint of this pool has'),
        ("{canary: {label: x, share: 1}}", 'routing: names the label "x", which no endpoint of this pool has'),
        ("{canary: {label: long}}", "routing.canary.share: is missing"),
        ("{canary: {label: long, share: 5}}", "routing.canary.share: must be at most 1"),
        ("{rules: [{when: {model: big}}]}", "routing.rules[0].to: is missing"),
        ("{rules: [{to: a b}]}", "routing.rules[0].to: must be of letters, digits and"),
        ("{rules: [{when: {min_prompt_tokens: 0}, to: long}]}", "routing.rules[0].when.min_prompt_tokens: must be at"),
        (
            "{rules: [{when: {min_prompt_tokens: 2, max_prompt_tokens: 1}, to: long}]}",
            "routing.rules[0].when: min_prompt_tokens must not be more than max_prompt_tokens",
        ),
        (
            "{rules: [{to: long}, {when: {model: big}, to: long}]}",
            "routing.rules: has a rule without conditions before others, which are never reached: make it the last",
        ),
        ("{rules: [{when: {team: a}, to: long}]}", "routing.rules[0].when.team: unknown key"),
    ],
)
def test_what_can_never_mean_what_it_says_is_refused(routing: str, says: str) -> None:
    assert mistake(routing).startswith(f"weir.yaml:5: pools.m.{says}")


def test_a_rule_for_a_model_of_no_name_of_the_pool_is_refused() -> None:
    assert mistake("{rules: [{when: {model: other}, to: long}]}") == (
        'weir.yaml:1: pools: has a rule in "m" for the model "other", which is no name of that pool'
    )
    assert read("{rules: [{when: {model: m}, to: long}]}").routing.rules[0].when.model == "m"


def test_a_canary_of_all_endpoints_is_refused() -> None:
    assert mistake("{canary: {label: long, share: 0.1}}", LABELLED) == (
        "weir.yaml:5: pools.m.routing: has a canary of all endpoints: leave at least one without its label"
    )


@pytest.mark.parametrize("last", ["{url: http://b, tier: 1, overflow_at: 4}", "{url: http://b, overflow_at: 4}"])
def test_an_endpoint_that_can_overflow_to_nobody_is_refused(last: str) -> None:
    assert mistake("{policy: random}", PLAIN, last) == (
        "weir.yaml:4: pools.m.endpoints: has overflow_at, but no endpoint of a higher tier: "
        "give one a higher tier, or remove it"
    )


def test_a_weight_is_bounded() -> None:
    assert "weight: must be at most 1e+06" in mistake("{}", "{url: http://a, weight: 10000000}")
