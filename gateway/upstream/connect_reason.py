"""Why no connection could be had, in words for the person who set up the engine."""

from __future__ import annotations

import os
import ssl
from typing import Final

# OpenSSL's X509_V_ERR_*: self-signed, self-signed in its chain, no issuer at hand, issuer not found
_UNKNOWN_ISSUER: Final = frozenset((18, 19, 20, 21))


def connect_reason(error: OSError) -> str:
    """Returns what went wrong, and what to do where that can be known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        known = error.verify_code not in _UNKNOWN_ISSUER
        return f"certificate verify failed: {error.verify_message}{'' if known else _remedy()}"
    reason: str | None = getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else None
    if reason:
        return f"TLS failed: {reason.lower().replace('_', ' ')}; does it speak TLS on this port?"
    if isinstance(error, ConnectionResetError) and error.errno is None:
        return "it closed the connection during the TLS handshake; does it speak TLS on this port?"
    if isinstance(error, ConnectionError) and error.errno is not None:
        return os.strerror(error.errno)  # asyncio's own words give the address instead
    return error.strerror or type(error).__name__


def _remedy() -> str:
    file, folders = os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", "")
    named = [("SSL_CERT_FILE", file), *(("SSL_CERT_DIR", folder) for folder in folders.split(os.pathsep))]
    for variable, path in named:  # OpenSSL passes over what it cannot read without a word
        if path and not os.access(path, os.R_OK):
            return f"; {variable} names {path}, which cannot be read"
    return "; is it of a CA of your own? name its file in SSL_CERT_FILE"
