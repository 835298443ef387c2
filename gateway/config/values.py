"""Checks of single configuration values: addresses, URLs, header names and values.

Every ``ValueError`` says what to do and never repeats the value, which may be a credential.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Final
from urllib.parse import urlsplit

VERSIONED_PATH: Final = re.compile(r"/v\d+$")

_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?")
_VISIBLE: Final = re.compile(r"[!-~]+")
_EVERY_V4: Final = ipaddress.IPv4Address("0.0.0.0")
_EVERY_V6: Final = ipaddress.IPv6Address("::")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_API_CALL: Final = re.compile(r"/(completions|embeddings|models)$")
_ENDPOINT_ID: Final = re.compile(r"[A-Za-z0-9._:/@+-]+")

# RFC 9110 section 7.6.1, and what the transport itself writes.
_TRANSPORT_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

_CREDENTIAL_HEADERS: Final = frozenset({"api-key", "authorization", "cookie", "proxy-authorization", "x-api-key"})


def split_address(text: str) -> tuple[str, int]:
    """Splits ``HOST:PORT`` into host (an IPv6 one without its brackets) and port; port 0 lets the system choose.

    Raises:
        ValueError: It is no such address.
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon or re.fullmatch(r"[0-9]{1,5}", port) is None or int(port) > 65535:
        raise ValueError("must be HOST:PORT, for example 127.0.0.1:8080")
    if not host:
        raise ValueError(f"needs a host: 127.0.0.1:{port} for this machine only, 0.0.0.0:{port} for every interface")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_ipv6(host):
            raise ValueError("has no IPv6 address between its brackets, for example [::1]:8080")
    elif ":" in host:
        raise ValueError("needs brackets around an IPv6 address, for example [::1]:8080")
    elif _HOST.fullmatch(host) is None:
        raise ValueError("has a host with characters that no host name has: write HOST:PORT, as 127.0.0.1:8080")
    return host, int(port)


def address(text: str) -> str:
    """Returns the address if it is ``HOST:PORT``; see ``split_address``."""
    split_address(text)
    return text.strip()


def same_address(one: tuple[str, int], other: tuple[str, int]) -> bool:
    """Whether who listens at both would take connections of one at the other.

    Args:
        one: As ``split_address`` returns it. Names of hosts are compared as they are written.
        other: Likewise.
    """
    if one[1] != other[1] or one[1] == 0:
        return False
    hosts = _listening(one[0]), _listening(other[0])
    if hosts[0] == hosts[1] or _EVERY_V6 in hosts:  # which takes IPv4 as well
        return True
    return _EVERY_V4 in hosts and not any(isinstance(host, ipaddress.IPv6Address) for host in hosts)


def endpoint_url(text: str) -> str:
    """Returns the URL without trailing slashes and without a final ``/v1``, scheme and host in lower case.

    A path that carries another version keeps it: ``/api/v3``, and ``/v2/v1``, another API without ``/v1``.

    Raises:
        ValueError: It is no base URL of an engine.
    """
    text = text.strip()
    if "://" not in text:
        raise ValueError("needs a scheme: write http://HOST:PORT or https://HOST:PORT")
    if _VISIBLE.fullmatch(text) is None:
        raise ValueError("has spaces, control characters or characters outside ASCII: percent-encode or remove them")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("is no URL with a valid host and port: write http://HOST:PORT") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError("must begin with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("must not carry a user or password: use api_key or headers")
    if not host or not (_HOST.fullmatch(host) or _is_ipv6(host)):
        raise ValueError("needs a valid host, for example http://10.0.0.1:8000")
    if port == 0:
        raise ValueError("needs a port from 1 to 65535")
    if "?" in text or "#" in text:
        raise ValueError("must not have a query or a fragment: give the base URL alone")
    netloc = f"[{host}]" if ":" in host else host
    if port is not None:
        netloc += f":{port}"
    return f"{parts.scheme}://{netloc}{_base_path(parts.path)}"


def collector_url(text: str) -> str:
    """Returns the base URL of an OTLP receiver, written with or without ``/v1/traces``; see ``endpoint_url``."""
    return endpoint_url(text.strip().rstrip("/").removesuffix("/v1/traces"))


def seen_header_name(text: str) -> str:
    """Returns, in lower case, the name of a header of the client's that Weir looks at.

    Raises:
        ValueError: HTTP allows no such name, or its value is a credential, which is nobody's to look at.
    """
    name = text.strip().lower()
    if _TOKEN.fullmatch(name) is None:
        raise ValueError("is no header name: use letters, digits and hyphens")
    if name in _CREDENTIAL_HEADERS:
        raise ValueError("carries credentials: name another header")
    return name


def kept_header_name(text: str) -> str:
    """Returns the same for a rule that can name the client's key itself.

    Raises:
        ValueError: As above; of ``Authorization`` it says what to do instead.
    """
    if text.strip().lower() == "authorization":
        raise ValueError("carries credentials: leave it out, and give what follows Bearer as key")
    return seen_header_name(text)


def header_name(text: str) -> str:
    """Returns a header's name in lower case.

    Raises:
        ValueError: HTTP allows no such name, or the transport sets that header itself.
    """
    name = text.strip().lower()
    if _TOKEN.fullmatch(name) is None:
        raise ValueError("is no header name: use letters, digits and hyphens")
    if name in _TRANSPORT_HEADERS:
        raise ValueError("cannot be set: Weir writes this header itself for each connection; remove it")
    return name


def header_value(text: str) -> str:
    """Returns a header's value without the white space around it.

    Raises:
        ValueError: Nothing is left, or an HTTP header cannot carry it.
    """
    text = text.strip(" \t\r\n")
    if not text:
        raise ValueError("is empty: give a value, or remove the key")
    for position, character in enumerate(text, start=1):
        if character != "\t" and not " " <= character <= "~":
            raise ValueError(
                f"has {_kind(character)} at position {position}, which an HTTP header cannot carry: "
                "check where the value comes from"
            )
    return text


def credential(text: str) -> str:
    """Returns a bearer credential without the white space around it.

    Raises:
        ValueError: It is empty, cannot be sent in a header, or includes the scheme.
    """
    value = header_value(text)
    if value.lower().startswith("bearer "):
        raise ValueError('begins with "Bearer": leave that word out, Weir adds it')
    if " " in value or "\t" in value:
        raise ValueError("has a space inside: check where the value comes from")
    return value


def model_name(text: str) -> str:
    """Returns the name of a pool or an alias.

    Raises:
        ValueError: It is empty, or has white space around it or control characters in it.
    """
    if not text or text != text.strip() or not text.isprintable():
        raise ValueError("must be a name without control characters and without spaces around it")
    return text


def endpoint_id(text: str) -> str:
    """Returns an endpoint's id or label; it stands in URLs, headers, metric labels and the reasons of choices.

    Raises:
        ValueError: It has other characters than those are safe in.
    """
    if _ENDPOINT_ID.fullmatch(text) is None:
        raise ValueError("must be of letters, digits and . _ : / @ + - only")
    return text


def origin(text: str) -> str:
    """Returns a CORS origin: ``*``, or scheme, host and port as browsers send them.

    Raises:
        ValueError: It has a path, or lacks scheme or host.
    """
    text = text.strip()
    if text != "*" and re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s?#@]+", text) is None:
        raise ValueError("must be * or an origin without a path, for example https://chat.example.com")
    return text


def _base_path(path: str) -> str:
    path = re.sub(r"/{2,}", "/", path).rstrip("/")
    if _API_CALL.search(path):
        raise ValueError("is the address of one API call: give the base URL, for example http://HOST:PORT/v1")
    shorter = path.removesuffix("/v1")
    return path if VERSIONED_PATH.search(shorter) else shorter


def _listening(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | str:
    """Returns the address that the host is, or its name; IPv4 in any form that the system takes, as 127.1."""
    if ":" in host:
        address = ipaddress.IPv6Address(host)
        return address.ipv4_mapped or address
    name = host.lower().rstrip(".")
    try:
        return ipaddress.IPv4Address(socket.inet_aton("127.0.0.1" if name == "localhost" else name))
    except OSError:
        return name


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _kind(character: str) -> str:
    if character in "\r\n":
        return "a line break"
    return "a control character" if ord(character) < 0x80 else "a character outside ASCII"
