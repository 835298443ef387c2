"""Clients whose machine is gone without a word: what the listening socket says of them holds for each connection."""

from __future__ import annotations

import socket

from gateway.server import bind


def test_a_clients_machine_that_is_gone_is_found_out() -> None:
    with bind("listen", "127.0.0.1:0") as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as connection:
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            assert [connection.getsockopt(socket.IPPROTO_TCP, name) for name in names] == [60, 20, 3]
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0  # it may read slowly
