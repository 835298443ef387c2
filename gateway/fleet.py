"""All pools, by every name that clients may ask for."""

from __future__ import annotations

from .config import Config
from .endpoint import Endpoint
from .pool import Pool


class Fleet:
    """All pools, by every name that clients may ask for."""

    def __init__(self, config: Config) -> None:
        self.pools = {name: Pool(pool) for name, pool in config.pools.items()}
        self._by_model = {model: pool for pool in self.pools.values() for model in (pool.name, *pool.config.aliases)}

    @property
    def models(self) -> list[str]:
        """Every name that clients may ask for, in the order of the configuration."""
        return list(self._by_model)

    def in_flight(self) -> int:
        """Requests that are being served now."""
        return sum(pool.in_flight for pool in self.pools.values())

    def pool_of(self, model: str) -> Pool | None:
        return self._by_model.get(model)

    def endpoint(self, id: str) -> tuple[Pool, Endpoint] | None:
        """Returns the endpoint of that name, and its pool."""
        for pool in self.pools.values():
            if (endpoint := pool.endpoints.get(id)) is not None:
                return pool, endpoint
        return None

    async def aclose(self) -> None:
        for pool in self.pools.values():
            await pool.aclose()
