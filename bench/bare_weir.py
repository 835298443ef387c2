"""``weir`` with all telemetry of a request switched off: what it costs is told by the difference. For no other use.

Nothing reads closed records, and requests have no place in a trace.
"""

from __future__ import annotations

import sys

from gateway import app
from gateway.__main__ import main
from gateway.flight_log import FlightLog, Observer
from gateway.trace_context import TraceHeads


class _Unread(FlightLog):
    def __init__(self, observers: tuple[Observer, ...]) -> None:
        super().__init__(())


def _nothing(*told: object) -> None:
    pass


app.FlightLog = _Unread  # type: ignore[misc]
TraceHeads.join = _nothing  # type: ignore[method-assign]

if __name__ == "__main__":
    sys.exit(main())
