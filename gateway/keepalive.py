"""Keep-alive comments: a stream's client, and what stands between, hears something during a long silence.

A comment is no token and stops no timer. The first one commits the answer to a 200, if nothing has before.
"""

from __future__ import annotations

import time

from .client_link import ClientLink, HeaderBlock
from .flight import FlightRecord
from .relay import Relay

COMMENT = b": keep-alive\n\n"


class KeepAlive:
    """Implements ``deadlines.Watched``.

    Attributes:
        relay: What the client hears besides, once a stream is under way.
    """

    __slots__ = ("_headers", "_link", "_period_s", "_record", "due_s", "relay")

    def __init__(self, record: FlightRecord, link: ClientLink, period_s: float, headers: HeaderBlock) -> None:
        self._record = record
        self._link = link
        self._period_s = period_s
        self._headers = headers
        self.relay: Relay | None = None
        self.due_s = time.perf_counter() + period_s

    def on_due(self, now_s: float) -> None:
        if self.relay is not None and self.relay.last_s + self._period_s > now_s:
            self.due_s = self.relay.last_s + self._period_s
            return
        self.due_s = now_s + self._period_s
        if not self._link.blocked:  # a client that takes nothing is sent nothing more
            if not self._link.started:
                self._record.status = 200
                self._link.start(200, self._headers)
            self._link.write(COMMENT)
