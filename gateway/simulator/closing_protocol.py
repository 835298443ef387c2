"""uvicorn's protocol, able to close a connection after an answer without having said so, as llama.cpp does."""

from __future__ import annotations

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_KEY = "simulator.close_after"


def close_after(scope: Scope) -> None:
    """Has the connection closed after the answer to this request; no effect on other servers."""
    scope.setdefault("state", {})[_KEY] = True


class ClosingProtocol(HttpToolsProtocol):
    """Closes where ``close_after`` was called."""

    def on_response_complete(self) -> None:
        closes = self.cycle.scope.get("state", {}).get(_KEY, False)
        super().on_response_complete()
        if closes:
            self.transport.close()
