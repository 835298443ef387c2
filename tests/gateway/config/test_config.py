"""The configuration's models, built directly."""

from __future__ import annotations

import pytest
from pydantic import SecretStr, ValidationError

from gateway.config import AdminConfig, Config, EndpointConfig, HealthConfig, PoolConfig, StreamConfig, TimeoutsConfig


def config(**pools: PoolConfig) -> Config:
    return Config(pools=pools or {"m": pool("http://127.0.0.1:8000")})


def pool(*urls: str, aliases: tuple[str, ...] = ()) -> PoolConfig:
    return PoolConfig(endpoints=tuple(EndpointConfig(url=url) for url in urls), aliases=aliases)


def test_every_default_is_the_documented_one() -> None:
    subject = config()
    (endpoint,) = subject.pools["m"].endpoints
    assert (subject.listen_host, subject.listen_port) == ("127.0.0.1", 8080)
    assert (subject.stream.keepalive_s, subject.stream.buffer_bytes) == (10.0, 262_144)
    assert (subject.limits_http.body_bytes, subject.limits_http.header_bytes) == (64 * 2**20, 64 * 2**10)
    assert subject.limits_http.read_s == 60.0
    assert (subject.log.level, subject.cors.allow_origins) == ("info", ())
    assert (subject.admin.listen, subject.admin.token, subject.shutdown.drain_s) == (None, None, 30.0)
    telemetry = subject.telemetry
    assert (telemetry.otlp_endpoint, telemetry.sample_ratio, telemetry.trust_parent) == (None, 0.1, True)
    assert (telemetry.keep_slower_than.ttft_s, telemetry.keep_slower_than.duration_s) == (2.0, 0.0)
    assert (telemetry.keep, telemetry.tail_per_second, telemetry.stall_s) == ((), 20, 1.0)
    timeouts = subject.pools["m"].timeouts
    assert (timeouts.connect_s, timeouts.head_s, timeouts.first_token_s) == (2.0, 60.0, 60.0)
    assert (timeouts.stall_s, timeouts.total_s) == (30.0, 1800.0)
    health = subject.pools["m"].health
    assert (health.interval_s, health.timeout_s, health.failures, health.successes) == (5.0, 2.0, 3, 1)
    assert (health.eject_s, health.eject_max_s) == (10.0, 300.0)
    assert (subject.pools["m"].retries.attempts, subject.pools["m"].retries.budget_ratio) == (3, 0.2)
    routing = subject.pools["m"].routing
    assert (routing.policy, routing.header, routing.rules, routing.canary) == ("latency", "x-session-id", (), None)
    assert (subject.pools["m"].slo.ttft_s, subject.pools["m"].slo.itl_s) == (2.0, 0.1)
    assert (subject.pools["m"].forward_authorization, subject.pools["m"].required) == (False, True)
    assert (endpoint.engine, endpoint.model, endpoint.api_key, endpoint.headers) == ("auto", None, None, {})
    assert (endpoint.weight, endpoint.weights, endpoint.transport) == (1.0, None, "native")
    assert (endpoint.label, endpoint.tier, endpoint.overflow_at) == (None, 0, None)


def test_a_pool_is_named_by_its_key_and_its_endpoints_by_their_place() -> None:
    subject = config(m=pool("http://a", "http://b"), n=pool("http://a"))
    assert [each.name for each in subject.pools.values()] == ["m", "n"]
    assert [e.id for each in subject.pools.values() for e in each.endpoints] == ["m-0", "m-1", "n-0"]


def test_an_id_that_was_given_is_kept() -> None:
    given = PoolConfig(endpoints=(EndpointConfig(url="http://a", id="gpu-1"), EndpointConfig(url="http://b")))
    assert [e.id for e in config(m=given).pools["m"].endpoints] == ["gpu-1", "m-1"]


def test_a_derived_id_holds_nothing_that_a_header_cannot_carry() -> None:
    subject = Config(pools={"通义 7b/x": pool("http://a")})
    assert subject.pools["通义 7b/x"].endpoints[0].id == "---7b/x-0"


def test_two_endpoints_never_share_an_id() -> None:
    taken = PoolConfig(endpoints=(EndpointConfig(url="http://a", id="m-1"), EndpointConfig(url="http://b")))
    with pytest.raises(ValidationError, match='the endpoint id "m-1" is taken'):
        config(m=taken)


def test_two_pools_never_share_a_name() -> None:
    with pytest.raises(ValidationError, match='"n" already names the pool "n"'):
        config(m=pool("http://a", aliases=("n",)), n=pool("http://b"))


def test_a_pool_without_endpoints_is_refused() -> None:
    with pytest.raises(ValidationError, match="at least 1 item"):
        PoolConfig(endpoints=())


@pytest.mark.parametrize(
    ("listen", "host", "port"),
    [
        ("0.0.0.0:1", "0.0.0.0", 1),
        ("[::1]:8080", "::1", 8080),
        ("localhost:0", "localhost", 0),
        ("weir_1:65535", "weir_1", 65535),
    ],
)
def test_listen_is_split_into_host_and_port(listen: str, host: str, port: int) -> None:
    subject = Config(listen=listen, pools=config().pools)
    assert (subject.listen_host, subject.listen_port) == (host, port)


@pytest.mark.parametrize(
    ("listen", "says"),
    [
        ("8080", "must be HOST:PORT"),
        (":8080", "0.0.0.0:8080 for every interface"),
        ("localhost", "must be HOST:PORT"),
        ("localhost:65536", "must be HOST:PORT"),
        ("localhost:", "must be HOST:PORT"),
        ("::1:8080", "needs brackets"),
        ("[::g]:8080", "no IPv6 address"),
        ("http//x:80", "no host name has"),
    ],
)
def test_an_address_that_is_none_is_refused_with_the_right_form(listen: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Config(listen=listen, pools=config().pools)


@pytest.mark.parametrize(
    ("listen", "admin"),
    [
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("127.0.0.1:8080", "0.0.0.0:8080"),
        ("0.0.0.0:8080", "10.0.0.1:8080"),
        ("0.0.0.0:8080", "weir.example.com:8080"),
        ("0:8080", "127.1:8080"),
        ("localhost:8080", "127.0.0.1:08080"),
        ("Weir.example.com:8080", "weir.example.com.:8080"),
        ("[::1]:8080", "[0:0:0:0:0:0:0:1]:8080"),
        ("[::]:8080", "[::1]:8080"),
        ("[::]:8080", "127.0.0.1:8080"),
        ("[::]:8080", "0.0.0.0:8080"),
        ("[::ffff:127.0.0.1]:8080", "127.0.0.1:8080"),
    ],
)
def test_one_address_for_clients_and_operators_is_refused(listen: str, admin: str) -> None:
    for one, other in ((listen, admin), (admin, listen)):
        with pytest.raises(ValidationError, match="listens where clients connect"):
            Config(listen=one, pools=config().pools, admin=AdminConfig(listen=other))


@pytest.mark.parametrize(
    ("listen", "admin"),
    [
        ("127.0.0.1:8080", "127.0.0.1:8081"),
        ("127.0.0.1:8080", "127.0.0.2:8080"),
        ("127.0.0.1:8080", "[::1]:8080"),
        ("0.0.0.0:8080", "[::1]:8080"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("a.example.com:8080", "b.example.com:8080"),
    ],
)
def test_two_addresses_for_clients_and_operators_are_not(listen: str, admin: str) -> None:
    for one, other in ((listen, admin), (admin, listen)):
        assert Config(listen=one, pools=config().pools, admin=AdminConfig(listen=other)).admin.listen == other


@pytest.mark.parametrize(
    ("given", "normal", "base_path", "has_version"),
    [
        ("http://U:8000", "http://u:8000", "", False),
        ("http://U:8000/", "http://u:8000", "", False),
        ("http://U:8000/v1", "http://u:8000", "", False),
        ("http://U:8000/v1/", "http://u:8000", "", False),
        ("http://U:8000//v1//", "http://u:8000", "", False),
        (" HTTPS://U/api/v3/ ", "https://u/api/v3", "/api/v3", True),
        ("http://u/llama/v1", "http://u/llama", "/llama", False),
        ("http://u/llama", "http://u/llama", "/llama", False),
        ("http://u/v2/v1", "http://u/v2/v1", "/v2/v1", True),
        ("http://u/v1beta", "http://u/v1beta", "/v1beta", False),
        ("http://[::1]:8000/v1", "http://[::1]:8000", "", False),
    ],
)
def test_a_url_is_brought_to_one_form(given: str, normal: str, base_path: str, has_version: bool) -> None:
    subject = EndpointConfig(url=given)
    assert (subject.url, subject.base_path, subject.has_version) == (normal, base_path, has_version)
    assert EndpointConfig(url=normal) == subject


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port"),
    [
        ("http://u", "http", "u", 80),
        ("https://u/v1", "https", "u", 443),
        ("http://[::1]:8000", "http", "::1", 8000),
        ("http://vllm_1:8000", "http", "vllm_1", 8000),
    ],
)
def test_a_url_says_where_to_connect(url: str, scheme: str, host: str, port: int) -> None:
    subject = EndpointConfig(url=url)
    assert (subject.scheme, subject.host, subject.port) == (scheme, host, port)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("localhost:8000", "needs a scheme"),
        ("", "needs a scheme"),
        ("ftp://u", "must begin with http"),
        ("http://", "needs a valid host"),
        ("http://:8000", "needs a valid host"),
        ("http://u:80x", "valid host and port"),
        ("http://u:70000", "valid host and port"),
        ("http://u:0", "port from 1"),
        ("http://[::g]", "valid host"),
        ("http://a b", "spaces"),
        ("http://u/\nv1", "control characters"),
        ("http://ü", "outside ASCII"),
        ("http://u?key=hidden", "query"),
        ("http://u#x", "fragment"),
        ("http://user:hidden@u", "api_key or headers"),
        ("http://u/v1/chat/completions", "one API call"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_and_not_repeated(url: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says) as caught:
        EndpointConfig(url=url)
    assert "hidden" not in str(caught.value)


def test_headers_are_kept_in_lower_case_and_without_white_space_around_them() -> None:
    assert EndpointConfig(url="http://u", headers={"X-Team": " chat\n"}).headers == {"x-team": "chat"}


@pytest.mark.parametrize("name", ["Host", "content-length", "Connection", "TE", "transfer-encoding", "accept-encoding"])
def test_a_header_of_the_connection_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="cannot be set"):
        EndpointConfig(url="http://u", headers={name: "x"})


@pytest.mark.parametrize("name", ["", "x y", "x:", "ü", "x\ny"])
def test_a_name_that_no_header_has_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="no header name"):
        EndpointConfig(url="http://u", headers={name: "x"})


def test_headers_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(ValidationError, match="names a header twice"):
        EndpointConfig(url="http://u", headers={"X-A": "1", "x-a": "2"})


def test_two_credentials_for_one_engine_are_refused() -> None:
    with pytest.raises(ValidationError, match="keep one of them"):
        EndpointConfig(url="http://u", api_key=SecretStr("k"), headers={"Authorization": "Bearer x"})


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("", "is empty"),
        (" \r\n", "is empty"),
        ("hid\nden", "a line break at position 4"),
        ("hid\x00den", "a control character at position 4"),
        ("hid\u200bden", "a character outside ASCII at position 4"),
        ("Bearer hidden", "leave that word out"),
        ("hidden hidden", "a space inside"),
    ],
)
def test_a_credential_that_no_header_can_carry_is_refused_and_not_repeated(key: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says) as caught:
        EndpointConfig(url="http://u", api_key=SecretStr(key))
    assert "hid" not in str(caught.value)


def test_secrets_are_not_in_the_repr() -> None:
    endpoint = EndpointConfig(url="http://u", api_key=SecretStr("hidden"), headers={"x-api-key": "hidden"})
    subject = Config(pools={"m": PoolConfig(endpoints=(endpoint,))})
    assert "hidden" not in repr(subject) + str(subject)


def test_white_space_around_a_credential_is_dropped() -> None:
    key = EndpointConfig(url="http://u", api_key=SecretStr(" sk-1\r\n")).api_key
    assert key is not None
    assert key.get_secret_value() == "sk-1"


def test_nothing_can_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        config().pools["m"].timeouts.connect_s = 1.0  # pyright: ignore[reportAttributeAccessIssue]


def test_numbers_without_units_are_seconds_and_bytes_where_the_name_says_so() -> None:
    assert TimeoutsConfig(connect_s=0.25).connect_s == 0.25
    assert StreamConfig(buffer_bytes=4096).buffer_bytes == 4096


def test_an_ejection_never_begins_above_its_bound() -> None:
    with pytest.raises(ValidationError, match="not be more than eject_max"):
        HealthConfig(eject_s=20.0, eject_max_s=10.0)
