"""How requests name their engine."""

from __future__ import annotations

import pytest

from gateway.upstream.host_header import host_header


@pytest.mark.parametrize(
    ("host", "port", "tls", "named"),
    [
        ("engine", 8000, False, b"engine:8000"),
        ("engine", 80, False, b"engine"),
        ("engine", 443, False, b"engine:443"),
        ("engine", 443, True, b"engine"),
        ("engine.", 80, True, b"engine.:80"),
        ("10.0.0.7", 8000, False, b"10.0.0.7:8000"),
        ("fd00::7", 8000, False, b"[fd00::7]:8000"),
        ("fd00::7", 80, False, b"[fd00::7]"),
        ("fe80::1%eth0", 8000, False, b"[fe80::1]:8000"),
        ("fe80::1%eth0", 443, True, b"[fe80::1]"),
    ],
)
def test_the_scheme_s_port_and_the_zone_of_an_address_are_left_out(
    host: str, port: int, tls: bool, named: bytes
) -> None:
    assert host_header(host, port, tls=tls) == named
