"""Every flight record that a gateway of the test closes."""

from __future__ import annotations

import pytest

from gateway import app
from gateway.flight import FlightRecord
from gateway.flight_log import FlightLog, Observer
from tests.fakes.scripted import eventually


class Flights:
    """Records in the order in which they were opened and closed.

    Attributes:
        opened: As they began.
        closed: As they ended; one that is in it twice was closed twice.
    """

    def __init__(self) -> None:
        self.opened: list[FlightRecord] = []
        self.closed: list[FlightRecord] = []

    async def ended(self, count: int = 1) -> FlightRecord:
        """Waits until that many have ended and none is open; checks that each ended once. Returns the last."""
        await eventually(lambda: len(self.closed) >= count and len(self.closed) >= len(self.opened))
        assert [id(record) for record in self.closed] == list(dict.fromkeys(id(record) for record in self.closed))
        assert {id(record) for record in self.closed} == {id(record) for record in self.opened}
        assert len(self.closed) == count
        return self.closed[-1]


def watched_flights(monkeypatch: pytest.MonkeyPatch) -> Flights:
    """Lets every gateway that is started from now on tell of its records."""
    flights = Flights()

    class Watched(FlightLog):
        def __init__(self, observers: tuple[Observer, ...]) -> None:
            super().__init__((*observers, flights.closed.extend))

        def open(self, request_id: str, method: str, path: str) -> FlightRecord:
            record = super().open(request_id, method, path)
            flights.opened.append(record)
            return record

    monkeypatch.setattr(app, "FlightLog", Watched)
    return flights
