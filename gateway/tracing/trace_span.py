"""A span as Weir makes it: plain values, from which OTLP's JSON is written, or one of the SDK's spans is made.

Most of what a span says is the same for all requests of one kind. That is made once, with its JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

AttributeValue = str | bool | int | float | tuple[str, ...]
Attributes = Mapping[str, AttributeValue]

# What is exported was sampled, whoever decided it when; the SDK takes nothing else.
SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Process(NamedTuple):
    """Who makes the spans."""

    resource: Resource
    scope: InstrumentationScope


# OTLP's numbers. Flags: the low byte is the trace's, sampled; 0x100 says that 0x200 tells whether the parent is remote.
_KINDS_JSON = {
    SpanKind.INTERNAL: '"kind":1,"flags":257',
    SpanKind.SERVER: '"kind":2,"flags":769',
    SpanKind.CLIENT: '"kind":3,"flags":257',
}


class Shared:
    """What many spans have in common, and its JSON.

    Attributes:
        head_json: Members of OTLP's span: its name and kind.
        json: The attributes, as ``attributes_json`` returns them.
    """

    __slots__ = ("attributes", "head_json", "json", "kind", "name")

    def __init__(self, name: str, kind: SpanKind, attributes: Attributes) -> None:
        self.name = name
        self.kind = kind
        self.attributes = attributes
        self.head_json = f'"name":{text_json(name)},{_KINDS_JSON[kind]}'
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
        shared: What it has in common with others.
        own: Its other attributes.
        links: Trace and span id of each.
        state: The trace's, as the client told it and ``state_text`` returns it; "" if there is none.
    """

    trace_id: str
    span_id: str
    parent_id: str
    remote_parent: bool
    start_ns: int
    end_ns: int
    shared: Shared
    own: Attributes
    failed: bool = False
    events: tuple[TraceEvent, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    state: str = ""

    @property
    def name(self) -> str:
        return self.shared.name

    @property
    def kind(self) -> SpanKind:
        return self.shared.kind

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        return {**self.shared.attributes, **self.own}

    def readable(self, process: Process) -> ReadableSpan:
        """Returns the same as one of the SDK's spans."""
        trace_id = int(self.trace_id, 16)
        state = TraceState.from_header([self.state]) if self.state else None
        parent = None
        if self.parent_id:
            parent = SpanContext(trace_id, int(self.parent_id, 16), self.remote_parent, SAMPLED, state)
        return ReadableSpan(
            self.name,
            SpanContext(trace_id, int(self.span_id, 16), False, SAMPLED, state),
            parent,
            process.resource,
            self.attributes,
            [Event(event.name, event.attributes, event.at_ns) for event in self.events],
            [Link(SpanContext(int(trace, 16), int(span, 16), True, SAMPLED)) for trace, span in self.links],
            self.shared.kind,
            status=Status(StatusCode.ERROR if self.failed else StatusCode.UNSET),
            start_time=self.start_ns,
            end_time=self.end_ns,
            instrumentation_scope=process.scope,
        )


def attributes_json(attributes: Attributes) -> str:
    """Returns OTLP's objects, without the list's brackets."""
    values: list[Any] = list(attributes.values())
    form, texts, lists = _form(tuple(attributes), tuple(map(type, values)))
    for at in texts:
        values[at] = text_json(values[at])
    for at in lists:
        values[at] = ",".join([f'{{"stringValue":{text_json(text)}}}' for text in values[at]])
    return form % tuple(values)


@cache  # keys are ours, and few
def _form(keys: tuple[str, ...], types: tuple[type, ...]) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Returns the JSON of attributes without their values, and which of these are texts or truths, and which lists."""
    parts: list[str] = []
    texts: list[int] = []
    lists: list[int] = []
    for at, (key, of) in enumerate(zip(keys, types, strict=True)):
        if issubclass(of, str | bool):
            value = '"stringValue":%s' if issubclass(of, str) else '"boolValue":%s'
            texts.append(at)
        elif issubclass(of, tuple):
            value = '"arrayValue":{"values":[%s]}'
            lists.append(at)
        else:
            value = '"intValue":"%d"' if issubclass(of, int) else '"doubleValue":%r'
        parts.append(f'{{"key":{text_json(key).replace("%", "%%")},"value":{{{value}}}}}')
    return ",".join(parts), tuple(texts), tuple(lists)


def text_json(value: str | float) -> str:
    """Returns a text as JSON, or a truth; half a surrogate pair, which JSON cannot carry, becomes a question mark."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        return orjson.dumps(str(value).encode("utf-8", "replace").decode()).decode()
