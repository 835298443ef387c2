"""What a client's request says to routing beside its prompt; read only for pools whose routing asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.types import Scope

from policies.types import Header

from .config import RoutingConfig
from .request_head import pick


class RouteSignals(NamedTuple):
    """What one request says.

    Attributes:
        session: What its client calls its session; None if it names none, or if nobody asks.
        headers: Those that rules name.
        model: The name it asked for.
    """

    session: bytes | None = None
    headers: tuple[Header, ...] = ()
    model: str = ""


SILENT = RouteSignals()


class SignalReader:
    """Reads what one pool's routing asks for."""

    def __init__(self, routing: RoutingConfig) -> None:
        sticky = routing.policy == "session" or routing.canary is not None
        self._session = routing.header.encode("ascii") if sticky else None
        self._ruled = frozenset(name.encode("ascii") for rule in routing.rules for name in rule.when.header)
        self._asks = sticky or bool(routing.rules)
        self._names = self._ruled if self._session is None else self._ruled | {self._session}

    def read(self, scope: Scope, body: Mapping[str, Any], model: str) -> RouteSignals:
        """Reads a request; ``body`` is its parsed JSON, whose ``user`` stands in for the session's header."""
        if not self._asks:
            return SILENT
        headers = pick(scope, self._names)
        session: bytes | None = None
        if self._session is not None:
            session = next((value for name, value in headers if name == self._session and value), None)
            if session is None and isinstance(user := body.get("user"), str) and user:
                session = user.encode("utf-8", "replace")
        return RouteSignals(session, headers if self._ruled else (), model)
