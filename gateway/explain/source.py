"""Where ``weir explain`` gets its explanations: the recorder's file, or a gateway that runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from ..attribution.explanation import Explanation, explanation
from ..flight import FlightRecord
from ..operator_client import CannotAsk, Refused, ask_gateway
from ..recorder.store import FlightStore, StoreError

# A record is written a moment after its request ended.
PATIENCE_S = 1.0
POLL_S = 0.1


class SourceError(Exception):
    """Nothing can be read; the message says why and what to do."""


class Source(Protocol):
    """Who knows of requests."""

    def named(self, name: str) -> list[Explanation]:
        """Returns the requests of a request id or a trace id, the oldest first.

        Raises:
            SourceError: It cannot be asked.
        """
        ...

    def slowest(self, most: int, since_s: float, pool: str | None) -> list[Explanation]:
        """Returns the requests of the last ``since_s`` seconds that took longest, the slowest first.

        Raises:
            SourceError: It cannot be asked.
        """
        ...


class FileSource:
    """Reads a flight recorder's file, whether its gateway runs or not."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def named(self, name: str) -> list[Explanation]:
        until_s = time.monotonic() + PATIENCE_S
        while True:
            found = self._read(lambda store: store.named(name))
            if found or time.monotonic() >= until_s:
                return [explanation(record) for record in found]
            time.sleep(POLL_S)

    def slowest(self, most: int, since_s: float, pool: str | None) -> list[Explanation]:
        found = self._read(lambda store: store.slowest(most, time.time() - since_s, pool))
        return [explanation(record) for record in found]

    def between(self, from_unix_s: float, to_unix_s: float, pool: str | None) -> Iterator[FlightRecord]:
        """Yields the records of requests that came in a span of time, about in the order in which they ended.

        Raises:
            SourceError: The file cannot be read.
        """
        with self._opened() as store:
            yield from store.between(from_unix_s, to_unix_s, pool)

    def _read(self, ask: Callable[[FlightStore], list[FlightRecord]]) -> list[FlightRecord]:
        with self._opened() as store:
            return ask(store)

    @contextmanager
    def _opened(self) -> Generator[FlightStore]:
        try:
            with closing(FlightStore.reading(self._path)) as store:
                yield store
        except StoreError as error:
            raise SourceError(
                f"{error}. The key recorder.path says where they are: name the configuration with -c, or the file with"
                f" --file. A gateway that keeps them in memory is asked with --url"
            ) from error


class GatewaySource:
    """Asks a gateway that runs.

    Args:
        url: Of its listener with the operator's paths.
        token: Its ``admin.token``, None without one.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        self._token = token

    def named(self, name: str) -> list[Explanation]:
        found = self._get(f"/weir/requests/{quote(name, safe='')}", {})
        if found is None:
            return []
        return found if isinstance(found, list) else [found]  # pyright: ignore[reportUnknownVariableType]

    def slowest(self, most: int, since_s: float, pool: str | None) -> list[Explanation]:
        query = {"slowest": str(most), "since": f"{since_s:.3f}s", **({"pool": pool} if pool else {})}
        found: list[Explanation] = self._get("/weir/requests", query) or []
        return found

    def _get(self, path: str, query: dict[str, str]) -> Any:
        try:
            return ask_gateway(self._url, self._token, "GET", path, "request_id", query)
        except CannotAsk as error:
            if isinstance(error, Refused) and error.code == "unknown_request":
                return None
            raise SourceError(str(error)) from error
