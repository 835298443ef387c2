"""A configuration file, and everything a person can get wrong in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from gateway.config import Config, EndpointConfig, KeepRuleConfig
from gateway.config.file import load, parse
from gateway.config.problems import ConfigError, Problem

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "weir.yaml"
POOL = "pools:\n  m:\n    endpoints: [http://u]\n"


def read(text: str, environ: Mapping[str, str] | None = None) -> Config:
    return parse(text, "weir.yaml", environ or {})


def endpoint(text: str, environ: Mapping[str, str] | None = None) -> EndpointConfig:
    """Reads one endpoint; ``text`` is what stands beside its URL, one key."""
    (subject,) = (
        read(f"pools:\n  m:\n    endpoints:\n      - url: http://u\n        {text}\n", environ).pools["m"].endpoints
    )
    return subject


def problems(text: str, environ: Mapping[str, str] | None = None) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        read(text, environ)
    return caught.value.problems


def mistakes(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    return ConfigError("weir.yaml", problems(text, environ)).lines()


def endpoint_mistake(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Returns the one mistake of an endpoint; see ``endpoint``."""
    with pytest.raises(ConfigError) as caught:
        endpoint(text, environ)
    (problem,) = caught.value.problems
    assert problem.line == 5
    return str(problem)


def test_the_shortest_file_is_one_pool_with_one_url() -> None:
    subject = read(POOL)
    assert [(name, pool.endpoints[0].url) for name, pool in subject.pools.items()] == [("m", "http://u")]


def test_every_key_can_be_written_with_its_units() -> None:
    subject = read(
        """
listen: "[::1]:9000"
stream: {keepalive: 500ms, buffer: 1MiB}
limits_http: {body: 10MB, header: 512B, read: 5s}
log: {level: debug}
cors: {allow_origins: ["https://chat.example.com"]}
admin: {listen: 127.0.0.1:9090, token: t}
shutdown: {drain: 0}
telemetry:
  otlp_endpoint: http://tempo:4318/v1/traces
  sample_ratio: 1
  trust_parent: no
  keep_slower_than: {ttft: 500ms, duration: 1m}
  keep: [{pool: m, model: default, header: {X-Team: payments}, min_prompt_tokens: 2, min_tokens: 10000},
         {key: "${TEAM_KEY:-7}"}]
  tail_per_second: 5
  stall: 2s
pools:
  m:
    aliases: [default, no]
    endpoints:
      - {id: gpu, url: "http://u/api/v3", engine: vllm, model: 8, api_key: 123, weight: 2, weights: a,
         transport: httpx2}
    timeouts: {connect: 1s, head: 2s, first_token: 3s, stall: 4s, total: 1h}
    health: {interval: 1s, timeout: 2s, failures: 4, successes: 5, eject: 6s, eject_max: 7m}
    retries: {attempts: 1, budget: 0}
    routing: {policy: latency}
    slo: {ttft: 500ms, itl: 50ms}
    forward_authorization: yes
    required: false
"""
    )
    pool = subject.pools["m"]
    assert (subject.listen_host, subject.listen_port) == ("::1", 9000)
    assert (subject.stream.keepalive_s, subject.stream.buffer_bytes) == (0.5, 2**20)
    assert (subject.limits_http.body_bytes, subject.limits_http.header_bytes) == (10_000_000, 512)
    assert subject.limits_http.read_s == 5.0
    assert (subject.log.level, subject.cors.allow_origins) == ("debug", ("https://chat.example.com",))
    assert (subject.admin.listen, subject.admin.token) == ("127.0.0.1:9090", SecretStr("t"))
    assert subject.shutdown.drain_s == 0
    telemetry = subject.telemetry
    assert (telemetry.otlp_endpoint, telemetry.sample_ratio, telemetry.trust_parent) == ("http://tempo:4318", 1, False)
    assert (telemetry.keep_slower_than.ttft_s, telemetry.keep_slower_than.duration_s) == (0.5, 60.0)
    assert telemetry.keep == (
        KeepRuleConfig(
            pool="m", model="default", header={"x-team": "payments"}, min_prompt_tokens=2, min_tokens=10_000
        ),
        KeepRuleConfig(key=SecretStr("7")),
    )
    assert (telemetry.tail_per_second, telemetry.stall_s) == (5, 2.0)
    assert (pool.name, pool.aliases) == ("m", ("default", "no"))
    assert (pool.timeouts.connect_s, pool.timeouts.total_s, pool.health.eject_max_s) == (1.0, 3600.0, 420.0)
    assert (pool.retries.attempts, pool.retries.budget_ratio) == (1, 0.0)
    assert (pool.routing.policy, pool.slo.ttft_s, pool.slo.itl_s) == ("latency", 0.5, 0.05)
    assert (pool.forward_authorization, pool.required) == (True, False)
    assert pool.endpoints == (
        EndpointConfig(
            id="gpu",
            url="http://u/api/v3",
            engine="vllm",
            model="8",
            api_key=SecretStr("123"),
            weight=2.0,
            weights="a",
            transport="httpx2",
        ),
    )


@pytest.mark.parametrize("listen", ["127.0.0.1:8080", "0.0.0.0:8080"])
def test_an_admin_listener_at_the_main_ones_address_is_told_with_what_to_do(listen: str) -> None:
    assert mistakes(f"{POOL}admin:\n  listen: {listen}\n") == [
        "weir.yaml:4: admin: listens where clients connect (listen is 127.0.0.1:8080): "
        "give admin.listen another port, or remove it"
    ]


def test_the_example_can_be_used_as_it_is() -> None:
    subject = parse(EXAMPLE.read_text(encoding="utf-8"), "weir.yaml", {})
    assert [endpoint.id for endpoint in subject.pools["llama-3-8b"].endpoints] == ["llama-3-8b-0", "spare"]


def test_all_mistakes_are_told_at_once_and_in_the_order_of_the_file() -> None:
    text = """\
listen: 8080
stream: {keepalive: 10}
pools:
  m:
    timeout: {connect: 2s}
    endpoints:
      - {engine: vlm}
      - http://u:x
    aliases: [n]
  n:
    endpoints: ["${NOWHERE}"]
    health: {failures: few}
"""
    assert mistakes(text) == [
        "weir.yaml:1: listen: must be HOST:PORT, for example 127.0.0.1:8080",
        "weir.yaml:2: stream.keepalive: needs a unit, for example 2s",
        'weir.yaml:5: pools.m.timeout: unknown key, did you mean "timeouts"?',
        "weir.yaml:7: pools.m.endpoints[0].url: is missing",
        "weir.yaml:7: pools.m.endpoints[0].engine: must be auto or openai or vllm or sglang or llamacpp "
        'or ollama or tgi or lightllm or lmdeploy or trtllm, did you mean "vllm"?',
        "weir.yaml:8: pools.m.endpoints[1].url: is no URL with a valid host and port: write http://HOST:PORT",
        'weir.yaml:9: pools.m.aliases[0]: "n" already names the pool "n": use another alias',
        "weir.yaml:11: pools.n.endpoints[0]: environment variable NOWHERE is not set: "
        "set it, or write ${NOWHERE:-default}",
        "weir.yaml:12: pools.n.health.failures: must be a whole number",
    ]


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("lisen: x", 'lisen: unknown key, did you mean "listen"?'),
        ("Pool: x", 'Pool: unknown key, did you mean "pools"?'),
        ("stream: {keep-alive: 1s}", 'stream.keep-alive: unknown key, did you mean "keepalive"?'),
        ("stream: {keepalive_s: 1}", 'stream.keepalive_s: unknown key, did you mean "keepalive"?'),
        ("first_token: 1s", "first_token: unknown key here; it belongs at pools.*.timeouts.first_token"),
        ("log: {zzz: 1}", "log.zzz: unknown key; the keys here are level"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest_one(key: str, says: str) -> None:
    assert mistakes(f"{POOL}{key}\n") == [f"weir.yaml:4: {says}"]


def test_the_name_of_a_pool_is_its_key_and_no_key_in_it() -> None:
    (problem,) = problems(f"{POOL}    name: x\n")
    assert (problem.line, problem.path) == (4, "pools.m.name")
    assert problem.message.startswith("unknown key")


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("keys: []", "keys"),
        ("shared_state: {redis: redis://r}", "shared_state"),
        ("limits: {on_shared_state_loss: reject}", "limits"),
        ("    limits: {policy: gradient}", "pools.m.limits"),
        ("    experiments: {}", "pools.m.experiments"),
    ],
)
def test_a_promised_key_is_not_supported_yet_rather_than_unknown(key: str, path: str) -> None:
    assert mistakes(f"{POOL}{key}\n") == [f"weir.yaml:4: {path}: is not supported yet: remove it"]


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("    aliases: default", "pools.m.aliases: must be a list"),
        ("    health: 5s", "pools.m.health: must be a mapping"),
        ("    health: [5s]", "pools.m.health: must be a mapping"),
        ("    health: {eject: 10m}", "pools.m.health: eject must not be more than eject_max (5m)"),
        ("    retries: {attempts: 2.5}", "pools.m.retries.attempts: must be a whole number"),
        ("    retries: {attempts: 0}", "pools.m.retries.attempts: must be at least 1"),
        ("    retries: {attempts: 11}", "pools.m.retries.attempts: must be at most 10"),
        ("    retries: {budget: 20%}", "pools.m.retries.budget: must be a number, for example 0.5"),
        ("    required: maybe", "pools.m.required: must be true or false"),
        ("    timeouts: {stall: 0}", "pools.m.timeouts.stall: must be more than 0"),
        ("    aliases: [{}]", "pools.m.aliases[0]: must be a text"),
        ('    aliases: [" x"]', "pools.m.aliases[0]: must be a name without control characters"),
        ("cors: {allow_origins: [https://x/]}", "cors.allow_origins[0]: must be * or an origin without a path"),
        ("log: {level: warn}", 'log.level: must be debug or info or warning or error, did you mean "warning"?'),
        ("    health:", "pools.m.health: has no value: give one, or remove the key"),
        ("log: !include x", "log: has a YAML tag (!...), which has no meaning here: quote the value"),
        ("<<: {listen: x}", "has a << key, which is not read"),
        ("? [a]\n: b", "has a key that is not plain text"),
        ("listen: a:1\nlisten: b:1", "listen: is given twice, first on line 4"),
    ],
)
def test_a_value_of_the_wrong_kind_is_answered_with_the_right_one(key: str, says: str) -> None:
    (problem,) = problems(f"{POOL}{key}\n")
    assert str(problem).startswith(says)


@pytest.mark.parametrize(("text", "says"), [("", "pools: is missing"), ("- x", "must be a mapping"), ("x", "must be")])
def test_a_file_without_pools_is_refused(text: str, says: str) -> None:
    (mistake,) = mistakes(text)
    assert mistake.startswith(f"weir.yaml:1: {says}")


def test_a_pool_without_endpoints_is_refused() -> None:
    assert mistakes("pools:\n  m:\n    endpoints: []\n") == ["weir.yaml:3: pools.m.endpoints: needs at least one entry"]


def test_a_file_with_no_pool_in_it_is_refused() -> None:
    assert mistakes("pools: {}\n") == ["weir.yaml:1: pools: needs at least one entry"]


def test_an_endpoint_id_that_is_taken_is_told_with_its_line() -> None:
    text = """\
pools:
  m:
    endpoints:
      - {url: http://a, id: gpu}
      - {url: http://b, id: m-2}
      - http://c
  n:
    endpoints:
      - url: http://d
        id: gpu
"""
    assert mistakes(text) == [
        'weir.yaml:6: pools.m.endpoints[2]: the endpoint id "m-2" is taken: give this endpoint another id',
        'weir.yaml:10: pools.n.endpoints[0].id: the endpoint id "gpu" is taken: give this endpoint another id',
    ]


def test_a_block_can_be_shared_by_an_alias() -> None:
    subject = read(
        f"{POOL}    timeouts: &patient {{total: 1h}}\n  n:\n    endpoints: [http://v]\n    timeouts: *patient\n"
    )
    assert subject.pools["m"].timeouts == subject.pools["n"].timeouts
    assert subject.pools["n"].timeouts.total_s == 3600.0


@pytest.mark.parametrize(
    "text",
    [
        "a: &a {b: *a}",
        "a: &a [*a, *a]",
        "[" * 2_000,
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)),
    ],
)
def test_a_file_that_never_ends_is_refused(text: str) -> None:
    assert mistakes(text) == ["weir.yaml:1: is nested too deeply, or an alias in it holds itself"]


@pytest.mark.parametrize(
    ("text", "line", "column", "hint"),
    [
        ("pools:\n  m: [a\nb: c\n", 3, 2, ""),
        ("pools:\n\tm: a\n", 2, 1, "indent with spaces, not tabs"),
        ("pools: {url: ${HOST}}\n", 1, 15, "quote values that have variables"),
        ("a: *nowhere\n", 1, 4, "quote a value that begins with *"),
        ("a: b\n---\na: c\n", 2, 1, ""),
    ],
)
def test_a_mistake_in_the_yaml_is_told_with_line_and_column(text: str, line: int, column: int, hint: str) -> None:
    (mistake,) = mistakes(text)
    assert mistake.startswith(f"weir.yaml:{line}: column {column}: YAML syntax: ")
    assert hint in mistake


def test_a_character_that_yaml_forbids_is_told_with_its_line() -> None:
    assert mistakes("a: b\nc: \x00\n") == ["weir.yaml:2: has a character that YAML does not allow: remove it"]


@pytest.mark.parametrize(
    "value",
    [
        "*hidden",
        "!hidden!x y",
        "!hidden x",
        "&hidden",
        '"hidden',
        "'hidden",
        '"hid\\qden"',
        "%hidden",
        "@hidden",
        "`hidden",
        "[hidden",
        "{hidden",
        "|hidden",
        '"hidden\\n1"',
        "${hidden",
        "Bearer hidden",
        "hidden hidden",
        "[hidden]",
        "{x: hidden}",
    ],
)
@pytest.mark.parametrize("key", ["api_key", "headers", "model", "weights", "headers: {x-key: y}\n        api_key"])
def test_no_message_shows_what_may_be_a_credential(key: str, value: str) -> None:
    read_or = read_or_problems(f"pools:\n  m:\n    endpoints:\n      - url: http://u\n        {key}: {value}\n")
    if isinstance(read_or, tuple):
        assert "hidden" not in " ".join(map(str, read_or))


def test_the_error_does_not_carry_what_it_was_made_from() -> None:
    with pytest.raises(ConfigError) as caught:
        endpoint("api_key: hid\u00e9den")
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_a_value_from_the_environment_is_filled_in() -> None:
    environ = {"HOST": "10.0.0.1", "N": "2", "KEY": "sk-1"}
    subject = endpoint("weight: ${N}", environ)
    assert subject.weight == 2.0
    assert endpoint("api_key: ${KEY}", environ).api_key == SecretStr("sk-1")
    assert endpoint("headers: {x: 'a ${KEY} ${HOST}'}", environ).headers == {"x": "a sk-1 10.0.0.1"}
    assert read("pools: {m: {endpoints: ['http://${HOST}:8000']}}", environ).pools["m"].endpoints[0].host == "10.0.0.1"


@pytest.mark.parametrize(
    ("text", "environ", "value"),
    [
        ("${V:-d}", {}, "d"),
        ("${V:-d}", {"V": ""}, "d"),
        ("${V:-d}", {"V": "v"}, "v"),
        ("${V:-a:-b}", {}, "a:-b"),
        ("a${V:-}b", {}, "ab"),
        ("$${V}", {"V": "v"}, "${V}"),
        ("$${V}${V}", {"V": "v"}, "${V}v"),
        ("$V $ {V} $$", {"V": "v"}, "$V $ {V} $$"),
        ("${V}", {"V": "${W} $${X}"}, "${W} $${X}"),
        ("${V}", {"V": "a: [b] # c"}, "a: [b] # c"),
    ],
)
def test_a_variable_may_have_a_default_and_an_escape(text: str, environ: dict[str, str], value: str) -> None:
    assert endpoint(f"weights: '{text}'", environ).weights == value


def test_keys_are_not_filled_in() -> None:
    assert list(read("pools: {'${V}': {endpoints: [http://u]}}", {"V": "v"}).pools) == ["${V}"]


@pytest.mark.parametrize("text", ["${", "${}", "${1}", "${V", "${V-x}", "a ${V:x}"])
def test_a_reference_that_is_none_is_refused(text: str) -> None:
    assert endpoint_mistake(f"weights: '{text}'", {"V": "v"}) == (
        "pools.m.endpoints[0].weights: has a ${ that begins no ${VARIABLE} or ${VARIABLE:-default}: "
        "write $${ for a literal ${"
    )


def test_rw_34_an_unset_variable_is_told_by_name_and_place() -> None:
    assert endpoint_mistake("api_key: ${ENGINE_KEY}") == (
        "pools.m.endpoints[0].api_key: environment variable ENGINE_KEY is not set: "
        "set it, or write ${ENGINE_KEY:-default}"
    )


def test_rw_34_each_unset_variable_is_told() -> None:
    lines = mistakes(f"{POOL}admin:\n  listen: ${{A}}:${{B}}\n  token: ${{C}}\n")
    assert [line.split(": set")[0] for line in lines] == [
        "weir.yaml:5: admin.listen: environment variable A is not set",
        "weir.yaml:5: admin.listen: environment variable B is not set",
        "weir.yaml:6: admin.token: environment variable C is not set",
    ]


@pytest.mark.parametrize("key", ["api_key: ${K}", "headers: {authorization: 'Bearer ${K}'}", "model: ${K}"])
def test_rw_34_an_empty_variable_counts_as_unset(key: str) -> None:
    assert "environment variable K is set but empty" in endpoint_mistake(key, {"K": ""})


@pytest.mark.parametrize("key", ["api_key: ${K:-}", "api_key: ''", "api_key:", "headers: {x: '${K:-}'}"])
def test_rw_34_authentication_never_falls_open(key: str) -> None:
    mistake = endpoint_mistake(key, {"K": " \n"})
    assert "is empty" in mistake or "has no value" in mistake


@pytest.mark.parametrize("token", ["${K:-}", "''", "", "${K}"])
def test_rw_34_the_operators_api_is_never_left_without_the_token_that_was_meant(token: str) -> None:
    (problem,) = problems(f"{POOL}admin:\n  token: {token}\n")
    assert (problem.line, problem.path) == (5, "admin.token")


@pytest.mark.parametrize("end", [" ", "\n", "\r\n", "\t", " \n \n"])
def test_rw_34_white_space_at_the_end_of_a_secret_is_dropped(end: str) -> None:
    environ = {"K": f"sk-1{end}"}
    assert endpoint("api_key: ${K}", environ).api_key == SecretStr("sk-1")
    assert endpoint("headers: {x: 'Key ${K}'}", environ).headers == {"x": "Key sk-1"}
    assert endpoint("model: ${K}", environ).model == "sk-1"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("hid\nden", "a line break at position 4"),
        ("hid\r\nx: den", "a line break at position 4"),
        ("hid\x1bden", "a control character at position 4"),
        ("hid\N{LATIN SMALL LETTER E WITH ACUTE}den", "a character outside ASCII at position 4"),
    ],
)
def test_rw_34_a_value_no_header_can_carry_is_refused_and_not_shown(value: str, kind: str) -> None:
    for key in ("api_key: ${K}", "headers: {x: '${K}'}"):
        mistake = endpoint_mistake(key, {"K": value})
        assert f"has {kind}, which an HTTP header cannot carry" in mistake
        assert "hid" not in mistake


def test_rw_34_an_escaped_literal_and_a_default_reach_the_engine_as_written() -> None:
    assert endpoint("headers: {x: '$${K}', y: '${K:-none}'}").headers == {"x": "${K}", "y": "none"}


def test_the_environment_of_the_process_is_used_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_TEST_HOST", "engine")
    path = tmp_path / "weir.yaml"
    path.write_text("\ufeffpools: {m: {endpoints: ['http://${WEIR_TEST_HOST}']}}", encoding="utf-8")
    assert load(path).pools["m"].endpoints[0].host == "engine"


def test_a_missing_file_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file: name another with -c FILE, or create it"):
        load(tmp_path / "weir.yaml")


def test_a_folder_or_a_binary_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory"):
        load(tmp_path)
    path = tmp_path / "weir.yaml"
    path.write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text \(byte 3\)"):
        load(path)


def read_or_problems(text: str) -> Config | tuple[Problem, ...]:
    try:
        return read(text)
    except ConfigError as error:
        return error.problems


@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@#?,\n \t$<", max_size=40))
def test_any_text_is_read_or_refused_with_problems(text: str) -> None:
    assert read_or_problems(text)


SHAPES = st.recursive(
    st.none() | st.sampled_from(["", "x", "1", "2s", "http://u", "true"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["pools", "m", "endpoints", "aliases", "url", "id", "headers", "health", "eject", "stream"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(SHAPES)
def test_data_of_any_shape_is_read_or_refused_with_problems(data: object) -> None:
    assert read_or_problems(json.dumps(data))


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("{pool: x}", 'telemetry.keep[0].pool: there is no pool "x"'),
        ("{model: x}", 'telemetry.keep[0].model: no pool answers to "x"'),
        ("{}", "telemetry.keep[0]: needs a condition; for every trace set telemetry.sample_ratio to 1"),
        (
            "{header: {Authorization: Bearer hidden}}",
            "telemetry.keep[0].header.Authorization: carries credentials: leave it out, "
            "and give what follows Bearer as key",
        ),
        ("{min_tokens: 0}", "telemetry.keep[0].min_tokens: must be at least 1"),
        (
            "{header: {X-Api-Key: hidden}}",
            "telemetry.keep[0].header.X-Api-Key: carries credentials: name another header",
        ),
        ("{key: }", "telemetry.keep[0].key: has no value: give one, or remove the key"),
        ("{key: ''}", "telemetry.keep[0].key: is empty: give a value, or remove the key"),
        ("{key: Bearer hidden}", 'telemetry.keep[0].key: begins with "Bearer": leave that word out'),
        ("{key: hidden hidden}", "telemetry.keep[0].key: has a space inside"),
        ('{key: "hidden\\u00e9"}', "telemetry.keep[0].key: has a character outside ASCII at position 7"),
        ("{tenant: x}", "telemetry.keep[0].tenant: unknown key"),
    ],
)
def test_a_keep_rule_that_can_never_mean_what_it_says_is_refused(rule: str, says: str) -> None:
    (mistake,) = mistakes(f"{POOL}telemetry: {{keep: [{rule}]}}\n")
    assert mistake.startswith(f"weir.yaml:4: {says}")
    assert "hidden" not in mistake
