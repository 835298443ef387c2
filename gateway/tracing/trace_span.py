"""A span as Weir makes it: plain values, from which OTLP's JSON is written, or one of the SDK's spans is made.

Most of a span's attributes are the same for all requests of one kind. Those are made once, with their JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

Attributes = Mapping[str, str | bool | int | float]

# What is exported was sampled, whoever decided it when; the SDK takes nothing else.
SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Process(NamedTuple):
    """Who makes the spans."""

    resource: Resource
    scope: InstrumentationScope


class Shared:
    """Attributes that many spans have, and their JSON: OTLP's objects without the list's brackets."""

    __slots__ = ("attributes", "json")

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = attributes
        self.json = attributes_json(attributes)


class TraceEvent(NamedTuple):
    """Something that happened in a span; wall clock."""

    name: str
    at_ns: int
    attributes: Attributes


class TraceSpan(NamedTuple):
    """A span that has ended; ids in hexadecimal, times by the wall clock.

    Attributes:
        parent_id: "" if there is none.
        remote_parent: The parent is another process's.
        shared: The attributes that it has in common with others.
        own: The others.
        links: Trace and span id of each.
    """

    trace_id: str
    span_id: str
    parent_id: str
    remote_parent: bool
    name: str
    kind: SpanKind
    start_ns: int
    end_ns: int
    shared: Shared
    own: Attributes
    failed: bool = False
    events: tuple[TraceEvent, ...] = ()
    links: tuple[tuple[str, str], ...] = ()

    @property
    def attributes(self) -> dict[str, str | bool | int | float]:
        return {**self.shared.attributes, **self.own}

    def readable(self, process: Process) -> ReadableSpan:
        """Returns the same as one of the SDK's spans."""
        trace_id = int(self.trace_id, 16)
        parent = None
        if self.parent_id:
            parent = SpanContext(trace_id, int(self.parent_id, 16), self.remote_parent, SAMPLED)
        return ReadableSpan(
            self.name,
            SpanContext(trace_id, int(self.span_id, 16), False, SAMPLED),
            parent,
            process.resource,
            self.attributes,
            [Event(event.name, event.attributes, event.at_ns) for event in self.events],
            [Link(SpanContext(int(trace, 16), int(span, 16), True, SAMPLED)) for trace, span in self.links],
            self.kind,
            status=Status(StatusCode.ERROR if self.failed else StatusCode.UNSET),
            start_time=self.start_ns,
            end_time=self.end_ns,
            instrumentation_scope=process.scope,
        )


def attributes_json(attributes: Attributes) -> str:
    parts: list[str] = []
    for key, value in attributes.items():
        if isinstance(value, str):
            parts.append(f'{_key_json(key)}{{"stringValue":{text_json(value)}}}}}')
        elif isinstance(value, bool):
            parts.append(f'{_key_json(key)}{{"boolValue":{"true" if value else "false"}}}}}')
        elif isinstance(value, int):
            parts.append(f'{_key_json(key)}{{"intValue":"{value}"}}}}')
        else:
            parts.append(f'{_key_json(key)}{{"doubleValue":{value!r}}}}}')
    return ",".join(parts)


@cache  # keys are ours, and few
def _key_json(key: str) -> str:
    return f'{{"key":{text_json(key)},"value":'


def text_json(text: str) -> str:
    """Returns a JSON string; half a surrogate pair, which JSON cannot carry, becomes a question mark."""
    try:
        return orjson.dumps(text).decode()
    except orjson.JSONEncodeError:
        return orjson.dumps(text.encode("utf-8", "replace").decode()).decode()
