"""``weir serve --workers N``: takes hold of the addresses and the folder, then supervises."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable

from ..config import Config
from ..config.values import same_address, split_address
from ..instruments.numbers_folder import numbers_folder
from ..server import CannotListen, bind
from .supervisor import Supervisor


def supervise(config: Config, count: int, told: Callable[[Config], None]) -> int:
    """Serves with that many workers until told to stop. Returns the exit status.

    Args:
        config: The configuration.
        count: How many workers, at least 2.
        told: Called once all of them serve, with the addresses that were really taken.

    Raises:
        CannotListen: For ``listen`` or ``admin.listen``.
        CannotUseFolder: For ``metrics.dir``.
    """
    with contextlib.ExitStack() as held:
        listen, holder = _hold("listen", config.listen)
        holders = [held.enter_context(holder)]
        update: dict[str, object] = {"listen": listen}
        if config.admin.listen is not None:
            listen, holder = _hold("admin.listen", config.admin.listen)
            holders.append(held.enter_context(holder))
            if same_address(*(each.getsockname()[:2] for each in holders)):  # two names of one host
                raise CannotListen("admin.listen", listen, OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)))
            update["admin"] = config.admin.model_copy(update={"listen": listen})
        folder = held.enter_context(numbers_folder(config.metrics.dir))
        bound = config.model_copy(update=update)

        def close_in_worker() -> None:
            for holder in holders:
                holder.close()

        return Supervisor(bound, count, folder, lambda: told(bound), close_in_worker).run()


def _hold(key: str, address: str) -> tuple[str, socket.socket]:
    """Returns the address with its port, and a socket that keeps it for those who share it.

    Whoever else listens there is found by binding alone first: beside another that shares, binding would succeed.
    """
    if split_address(address)[1]:
        bind(key, address).close()
    holder = bind(key, address, shared=True)
    return f"{address.rpartition(':')[0]}:{holder.getsockname()[1]}", holder
