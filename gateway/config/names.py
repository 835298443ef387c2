"""Names that must be unique over the whole file: pools, aliases, endpoint ids."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolNames:
    """What one pool names.

    Attributes:
        name: The pool's key.
        aliases: Further names of it.
        endpoint_ids: One per endpoint, in order; empty where none was given.
    """

    name: str
    aliases: tuple[str, ...]
    endpoint_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """A name that is taken; ``path`` leads to its second use."""

    path: tuple[str | int, ...]
    message: str


def derived_endpoint_id(pool: str, index: int) -> str:
    """Returns the id of an endpoint that was given none: ``{pool}-{index}``, index from 0.

    What a header or a URL would not carry becomes a hyphen.
    """
    return f"{re.sub(r'[^A-Za-z0-9._:/@+-]', '-', pool)}-{index}"


def conflicts(pools: Iterable[PoolNames]) -> list[Conflict]:
    """Returns every use of a name that an earlier pool, alias or endpoint has."""
    pools = list(pools)
    found: list[Conflict] = []
    owners = {pool.name: f'the pool "{pool.name}"' for pool in pools}
    ids: set[str] = set()
    for pool in pools:
        for index, alias in enumerate(pool.aliases):
            if alias in owners:
                message = f'"{alias}" already names {owners[alias]}: use another alias'
                found.append(Conflict(("pools", pool.name, "aliases", index), message))
            else:
                owners[alias] = f'the pool "{pool.name}", as an alias of it'
        for index, given in enumerate(pool.endpoint_ids):
            endpoint_id = given or derived_endpoint_id(pool.name, index)
            if endpoint_id in ids:
                path: tuple[str | int, ...] = ("pools", pool.name, "endpoints", index)
                message = f'the endpoint id "{endpoint_id}" is taken: give this endpoint another id'
                found.append(Conflict((*path, "id") if given else path, message))
            ids.add(endpoint_id)
    return found
