"""``nginx/weir.conf`` says what Weir's defaults say. Needs no nginx."""

from __future__ import annotations

import re

import pytest

from gateway.config import Config, LimitsHttpConfig, TimeoutsConfig
from gateway.server import CLIENT_IDLE_S
from tests.nginx.real_nginx import CONF

SIZES = {"k": 1 << 10, "m": 1 << 20}
TIMES_S = {"s": 1, "m": 60, "h": 3600}
DIRECTIVE = re.compile(r"^ *(\w+) +([^;{}#]+);", re.MULTILINE)


def value(name: str) -> str:
    """The value of a directive that stands in the file once."""
    (found,) = [match for match in DIRECTIVE.finditer(CONF.read_text()) if match[1] == name]
    return found[2]


def size_bytes(text: str) -> int:
    return int(text[:-1]) * SIZES[text[-1]]


def time_s(text: str) -> int:
    return int(text[:-1]) * TIMES_S[text[-1]]


def test_it_takes_the_bodies_and_headers_that_weir_takes() -> None:
    limits = LimitsHttpConfig()
    assert size_bytes(value("client_max_body_size")) == limits.body_bytes
    count, size = value("large_client_header_buffers").split()
    assert size_bytes(size) == limits.header_bytes
    assert int(count) > 1, "the request line and the headers do not share a buffer"


@pytest.mark.parametrize("name", ["proxy_read_timeout", "proxy_send_timeout", "send_timeout"])
def test_it_waits_longer_than_weir_lets_a_request_take(name: str) -> None:
    assert time_s(value(name)) > TimeoutsConfig().total_s


def test_it_closes_idle_connections_before_weir_does() -> None:
    assert time_s(value("keepalive_timeout")) < CLIENT_IDLE_S


def test_it_asks_weir_where_weir_listens_by_default() -> None:
    assert value("server") == Config.model_fields["listen"].default
