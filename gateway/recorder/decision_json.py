"""Decisions as JSON arrays, and back. What endpoints looked like is written once for all decisions of a batch."""

from __future__ import annotations

from typing import Any, Final
from zlib import crc32

from policies.types import EndpointSnapshot, PoolView, RouteQuery

from ..flight import Decision

_LEARNT: Final = EndpointSnapshot._fields.index("learnt")
_CAPABILITIES: Final = EndpointSnapshot._fields.index("capabilities")

FIELDS: Final = ("abilities", *EndpointSnapshot._fields, *PoolView._fields, *RouteQuery._fields)


class Snapshots:
    """The endpoints of a batch's decisions, each state of each once.

    Attributes:
        rows: Their fields. What a policy had learnt is left out: it learns it again from the records.
        abilities: What engines could do; a row has the place of its own here, for few differ.
    """

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.abilities: list[list[str]] = []
        self._able: dict[frozenset[str], int] = {}
        self._places: dict[int, int] = {}  # by identity; the decisions keep the snapshots alive

    def place(self, snapshot: EndpointSnapshot) -> int:
        """Returns the row of a snapshot."""
        place = self._places.get(id(snapshot))
        if place is None:
            place = self._places[id(snapshot)] = len(self.rows)
            row = list[Any](snapshot)
            row[_CAPABILITIES], row[_LEARNT] = self._ability(snapshot.capabilities), None
            self.rows.append(row)
        return place

    def _ability(self, capabilities: frozenset[str]) -> int:
        place = self._able.get(capabilities)
        if place is None:
            place = self._able[capabilities] = len(self.abilities)
            self.abilities.append(list(capabilities))
        return place


def plain(decision: Decision, snapshots: Snapshots) -> tuple[Any, ...]:
    """Returns what is written. Of a prompt's blocks only the first, and of a session's name only a checksum."""
    now_s, sequence, endpoints, seed = decision.view
    query = decision.query
    place = snapshots.place
    return (
        now_s,
        sequence,
        [place(endpoint) for endpoint in endpoints],
        seed,
        list(query.tried),
        list(query.needed),
        query.prompt_tokens,
        query.blocks[:1],
        dict(query.cached_tokens),
        None if query.session is None else crc32(query.session),
    )


def endpoints(abilities: list[list[str]], rows: list[list[Any]]) -> list[EndpointSnapshot]:
    """Reads the rows of a batch."""
    able = [frozenset(names) for names in abilities]
    made: list[EndpointSnapshot] = []
    for row in rows:
        row[_CAPABILITIES] = able[row[_CAPABILITIES]]
        made.append(EndpointSnapshot._make(row))
    return made


def decision(told: list[Any], known: list[EndpointSnapshot]) -> Decision:
    """Reads a decision."""
    now_s, sequence, _, seed, tried, needed, prompt_tokens, blocks, cached_tokens, session = told
    places: list[int] = told[2]
    return Decision(
        PoolView(now_s, sequence, tuple([known[place] for place in places]), seed),
        RouteQuery(
            frozenset(tried),
            frozenset(needed),
            prompt_tokens,
            tuple(blocks),
            cached_tokens,
            None if session is None else b"%08x" % session,
        ),
    )
