"""The field ``Host`` of requests to an engine."""

from __future__ import annotations


def host_header(host: str, port: int, *, tls: bool) -> bytes:
    """Returns the engine as its requests name it: an IPv6 address in brackets, the scheme's usual port left out.

    The zone of an address (``fe80::1%eth0``) is a name of this machine's own: it is nobody else's business (RFC 6874,
    section 4), and servers refuse it.
    """
    named = f"[{host.partition('%')[0]}]" if ":" in host else host
    usual = 443 if tls else 80
    return (named if port == usual else f"{named}:{port}").encode("ascii")
