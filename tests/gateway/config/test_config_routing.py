"""What the file says of routing: read whole, and every mistake told."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gateway.config import CanaryConfig, Config, PoolConfig, RoutingRuleConfig, RuleConditionsConfig
from gateway.config.file import parse
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
        ("{rules: [{to: other}]}", 'routing.rules[0].to: no endpoint of this pool has the label "other"'),
        ("{canary: {label: x, share: 1}}", 'routing.canary.label: no endpoint of this pool has the label "x"'),
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
            "routing.rules[0]: has no condition, so the rules behind it are never reached: make it the last",
        ),
        ("{rules: [{when: {team: a}, to: long}]}", "routing.rules[0].when.team: unknown key"),
    ],
)
def test_what_can_never_mean_what_it_says_is_refused(routing: str, says: str) -> None:
    assert mistake(routing).startswith(f"weir.yaml:5: pools.m.{says}")


def test_a_rule_for_a_model_of_no_name_of_the_pool_is_refused() -> None:
    assert mistake("{rules: [{when: {model: other}, to: long}]}") == (
        'weir.yaml:5: pools.m.routing.rules[0].when.model: "other" is no name of this pool: name it, or an alias of it'
    )
    assert read("{rules: [{when: {model: m}, to: long}]}").routing.rules[0].when.model == "m"


def test_a_canary_of_all_endpoints_is_refused() -> None:
    assert mistake("{canary: {label: long, share: 0.1}}", LABELLED) == (
        "weir.yaml:5: pools.m.routing.canary.label: all endpoints have it: leave at least one without it"
    )


@pytest.mark.parametrize("last", ["{url: http://b, tier: 1, overflow_at: 4}", "{url: http://b, overflow_at: 4}"])
def test_an_endpoint_that_can_overflow_to_nobody_is_refused(last: str) -> None:
    assert mistake("{policy: random}", PLAIN, last) == (
        "weir.yaml:4: pools.m.endpoints: has overflow_at, but no endpoint of a higher tier: "
        "give one a higher tier, or remove it"
    )


def test_a_weight_is_bounded() -> None:
    assert "weight: must be at most 1e+06" in mistake("{}", "{url: http://a, weight: 10000000}")


EVERY_MISTAKE = """pools:
  m:
    endpoints: [http://a, {url: http://b, label: long}]
    routing:
      policy: fastest
      rules:
        - to: long
        - {when: {model: other}, to: one}
        - {when: {min_prompt_tokens: 0}, to: two}
        - {when: {max_prompt_tokens: 1, min_prompt_tokens: 2}, to: long}
      canary: {label: three, share: 5}
  n:
    endpoints: [{url: http://c, label: x}]
    routing: {canary: {label: x, share: 0.5}, rules: [{to: y}]}
telemetry:
  keep: [{pool: o}, {model: p}, {pool: m}]
"""


def test_every_mistake_is_told_whatever_others_there_are() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(EVERY_MISTAKE, "weir.yaml", {})
    assert [line.partition(": ")[0:3:2] for line in caught.value.lines()] == [
        ("weir.yaml:5", "pools.m.routing.policy: must be latency or least_in_flight or peak_ewma or power_of_two or "
         "prefix or random or round_robin or session"),
        ("weir.yaml:7", "pools.m.routing.rules[0]: has no condition, so the rules behind it are never reached: "
         "make it the last"),
        ("weir.yaml:8", 'pools.m.routing.rules[1].to: no endpoint of this pool has the label "one"'),
        ("weir.yaml:8", 'pools.m.routing.rules[1].when.model: "other" is no name of this pool: name it, or an alias '
         "of it"),
        ("weir.yaml:9", "pools.m.routing.rules[2].when.min_prompt_tokens: must be at least 1"),
        ("weir.yaml:9", 'pools.m.routing.rules[2].to: no endpoint of this pool has the label "two"'),
        ("weir.yaml:10", "pools.m.routing.rules[3].when: min_prompt_tokens must not be more than max_prompt_tokens"),
        ("weir.yaml:11", "pools.m.routing.canary.share: must be at most 1"),
        ("weir.yaml:11", 'pools.m.routing.canary.label: no endpoint of this pool has the label "three"'),
        ("weir.yaml:14", 'pools.n.routing.rules[0].to: no endpoint of this pool has the label "y"'),
        ("weir.yaml:14", "pools.n.routing.canary.label: all endpoints have it: leave at least one without it"),
        ("weir.yaml:16", 'telemetry.keep[0].pool: there is no pool "o"'),
        ("weir.yaml:16", 'telemetry.keep[1].model: no pool answers to "p"'),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "pool",
    [
        "{endpoints: [{url: http://a, label: '${L}'}], routing: {rules: [{to: long}]}}",
        "{aliases: ['${L}'], endpoints: [{url: http://a, label: x}], routing: {rules: [{when: {model: b}, to: x}]}}",
        "{endpoints: [{url: http://a, label: x}], routing: {rules: [{when: {model: '${L}'}, to: x}, {to: x}]}}",
        "{endpoints: [{url: http://a, label: x}], routing: {rules: [{when: '${L}', to: x}, {to: x}]}}",
    ],
)
def test_names_that_are_not_known_are_not_missed(pool: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"pools: {{m: {pool}}}\ntelemetry: {{keep: [{{model: m}}]}}\n", "weir.yaml", {})
    (line,) = caught.value.lines()
    assert "environment variable L is not set" in line


@pytest.mark.parametrize(
    "routing", ["x", "[]", "{rules: x}", "{rules: [x]}", "{rules: [{to: {}, when: []}]}", "{canary: x}", "{canary: []}"]
)
def test_what_has_the_wrong_shape_names_nothing(routing: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(routing)
    assert "label" not in str(caught.value)


def test_a_configuration_that_is_built_directly_is_held_to_the_same() -> None:
    endpoint: dict[str, object] = {"url": "http://a"}
    for routing in ({"rules": [{"to": "x"}]}, {"canary": {"label": "x", "share": 0.5}}):
        with pytest.raises(ValidationError, match='no endpoint of this pool has the label "x"'):
            Config.model_validate({"pools": {"m": {"endpoints": [endpoint], "routing": routing}}})
    with pytest.raises(ValidationError, match='there is no pool "x"'):
        Config.model_validate({"pools": {"m": {"endpoints": [endpoint]}}, "telemetry": {"keep": [{"pool": "x"}]}})
