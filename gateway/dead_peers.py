"""Connections whose other end is gone without a word, its machine off or its network cut: the kernel finds them out.

Whatever is said to a live end, its kernel acknowledges, even if its process hangs. An answer that comes as a whole
after minutes would otherwise be waited for from a machine that no longer exists; and what forwards connections, a
load balancer or a NAT, forgets those on which nothing moves.
"""

from __future__ import annotations

import socket
from typing import Protocol

ENGINE_S = 30.0
CLIENT_S = 120.0
_PROBES = 3
# The time until the first probe has another name on macOS
_IDLE = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)


class HasOptions(Protocol):
    """A socket, or what uvloop gives for one."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def find_dead_peer(sock: HasOptions, silence_s: float, *, unread: bool = False) -> None:
    """Has the connection closed by the kernel when the other end's kernel has said nothing for so long.

    Connections that a listening socket accepts take it over.

    Args:
        sock: Of TCP.
        silence_s: At least 2, in whole seconds. Half of it passes before the first question.
        unread: Also where what was sent is not acknowledged, or the other end reads nothing (Linux).
    """
    half_s = round(silence_s / 2)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if _IDLE is not None:
        sock.setsockopt(socket.IPPROTO_TCP, _IDLE, half_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(half_s // _PROBES, 1))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    if unread and hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silence_s * 1000))
