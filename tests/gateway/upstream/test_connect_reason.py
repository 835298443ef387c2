"""Why no connection could be had, in words."""

from __future__ import annotations

import errno
import os
import ssl
from pathlib import Path

import pytest

from gateway.upstream.connect_reason import connect_reason


def refused_certificate(code: int, message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, f"[SSL: CERTIFICATE_VERIFY_FAILED] {message} (_ssl.c:1006)")
    error.verify_code, error.verify_message = code, message
    return error


@pytest.mark.parametrize("code", [18, 19, 20, 21])
def test_a_certificate_of_an_unknown_issuer_says_how_to_make_it_known(code: int) -> None:
    told = connect_reason(refused_certificate(code, "unable to get local issuer certificate"))
    assert told.startswith("certificate verify failed: unable to get local issuer certificate")
    assert "SSL_CERT_FILE" in told


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_a_variable_that_names_nothing_is_told(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "our-ca.pem"
    monkeypatch.setenv(variable, str(missing))
    told = connect_reason(refused_certificate(20, "unable to get local issuer certificate"))
    assert told.endswith(f"; {variable} names {missing}, which cannot be read")


@pytest.mark.parametrize(
    ("code", "message"), [(10, "certificate has expired"), (62, "Hostname mismatch, certificate is not valid for 'x'.")]
)
def test_one_that_is_wrong_itself_says_only_why(code: int, message: str) -> None:
    assert connect_reason(refused_certificate(code, message)) == f"certificate verify failed: {message}"


def test_other_errors_are_told_as_the_system_does() -> None:
    assert connect_reason(OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))) == "Connection refused"
    assert connect_reason(ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed")) == "Connection refused"
    assert connect_reason(ConnectionAbortedError()) == "ConnectionAbortedError"


def test_a_handshake_that_the_engine_ended_is_told_as_such() -> None:
    assert connect_reason(ConnectionResetError()).startswith("it closed the connection during the TLS handshake")
    assert connect_reason(ssl.SSLError()) == "SSLError"
