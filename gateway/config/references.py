"""Names that have to be somewhere else in the file: labels of endpoints, models and pools that rules speak of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gateway.config.names import Conflict


@dataclass(frozen=True, slots=True)
class RuleNames:
    """What one routing rule names; empty where it names nothing.

    Attributes:
        label: Where its requests go.
        model: Which they have to ask for.
        about_all: It has no condition.
    """

    label: str
    model: str
    about_all: bool


@dataclass(frozen=True, slots=True)
class PoolReferences:
    """What one pool is called, and what its routing names.

    Attributes:
        name: The pool's key.
        aliases: Further names of it; one that is empty is not known.
        labels: One per endpoint, empty where none was given; nothing at all where they are not known.
        rules: In order.
        canary: Its label; empty without one.
    """

    name: str
    aliases: tuple[str, ...]
    labels: tuple[str, ...]
    rules: tuple[RuleNames, ...]
    canary: str


@dataclass(frozen=True, slots=True)
class KeepNames:
    """What one rule of kept traces names; empty where it names nothing."""

    pool: str
    model: str


def missing_in_routing(pools: Iterable[PoolReferences]) -> Iterator[Conflict]:
    """Yields every name in the pools' routing that is not there, and every rule that keeps others from being read."""
    for pool in pools:
        at: tuple[str | int, ...] = ("pools", pool.name, "routing")
        for index, rule in enumerate(pool.rules):
            here = (*at, "rules", index)
            if _is_missing(rule.label, pool.labels):
                yield Conflict((*here, "to"), _no_label(rule.label))
            if "" not in pool.aliases and _is_missing(rule.model, (pool.name, *pool.aliases)):
                message = f'"{rule.model}" is no name of this pool: name it, or an alias of it'
                yield Conflict((*here, "when", "model"), message)
            if rule.about_all and index < len(pool.rules) - 1:
                message = "has no condition, so the rules behind it are never reached: make it the last"
                yield Conflict(here, message)
        if _is_missing(pool.canary, pool.labels):
            yield Conflict((*at, "canary", "label"), _no_label(pool.canary))
        elif pool.canary and set(pool.labels) == {pool.canary}:
            message = "all endpoints have it: leave at least one without it"
            yield Conflict((*at, "canary", "label"), message)


def missing_in_keep(rules: Iterable[KeepNames], pools: Sequence[PoolReferences]) -> Iterator[Conflict]:
    """Yields every pool and model that a rule of kept traces names and that is not there."""
    names = [pool.name for pool in pools]
    models = [name for pool in pools for name in (pool.name, *pool.aliases)]
    for index, rule in enumerate(rules):
        at: tuple[str | int, ...] = ("telemetry", "keep", index)
        if _is_missing(rule.pool, names):
            yield Conflict((*at, "pool"), f'there is no pool "{rule.pool}"')
        if "" not in models and _is_missing(rule.model, models):
            yield Conflict((*at, "model"), f'no pool answers to "{rule.model}"')


def _is_missing(name: str, known: Sequence[str]) -> bool:
    """Whether a name that was given is none of those; without any, they are not known."""
    return bool(name and known) and name not in known


def _no_label(label: str) -> str:
    return f'no endpoint of this pool has the label "{label}"'
