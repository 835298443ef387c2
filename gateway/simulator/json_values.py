"""A plausible value for a JSON schema: small, and valid for the keywords that clients of engines use.

Known: type, enum, const, properties, required, items, minItems, minLength, maxLength, format, minimum, maximum and
their exclusive forms, multipleOf, anyOf, oneOf, allOf, $ref. ``pattern`` is not followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor

from pydantic import JsonValue

_FORMATS = {
    "date": "2026-01-15",
    "time": "12:00:00Z",
    "date-time": "2026-01-15T12:00:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "ipv4": "192.0.2.1",
    "hostname": "example.com",
}
_SHALLOW = 3  # objects nested deeper get only what they require, so that recursive schemas end


class BadSchema(Exception):
    """The schema cannot be satisfied or names an unknown type; the message says which."""


def value_for(schema: JsonValue, words: Sequence[str]) -> JsonValue:
    """Makes a value that the schema accepts.

    Args:
        schema: A JSON schema; ``$ref`` is looked up in it.
        words: Used for strings, the first ones first, and to choose from an enum; at least one.

    Raises:
        BadSchema: An unknown type, a reference that leads nowhere, or a schema without a finite value.
    """
    return _Maker(schema, words).value(schema, 0)


class _Maker:
    def __init__(self, root: JsonValue, words: Sequence[str]) -> None:
        self._root = root
        self._words = words
        self._strings = 0

    def value(self, schema: JsonValue, depth: int) -> JsonValue:
        if depth > 32:
            raise BadSchema("the schema has no end")
        if not isinstance(schema, dict):
            return None
        if "const" in schema:
            return schema["const"]
        options = schema.get("enum")
        if isinstance(options, list) and options:
            spoken = {word.lower() for word in self._words}
            return next((option for option in options if str(option).lower() in spoken), options[0])
        for key in ("anyOf", "oneOf"):
            choices = schema.get(key)
            if isinstance(choices, list) and choices:
                shared = {name: rule for name, rule in schema.items() if name != key}
                null: JsonValue = {"type": "null"}
                chosen = null if depth >= _SHALLOW and null in choices else choices[0]
                return self.value(self._merged([shared, chosen]), depth + 1)
        parts = schema.get("allOf")
        if "$ref" in schema or isinstance(parts, list):
            shared = {name: rule for name, rule in schema.items() if name not in ("allOf", "$ref")}
            merged: list[JsonValue] = [shared, *(parts if isinstance(parts, list) else [])]
            if "$ref" in schema:
                merged.append(self._referred(schema["$ref"]))
            return self.value(self._merged(merged), depth + 1)
        return self._typed(schema, depth)

    def _typed(self, schema: dict[str, JsonValue], depth: int) -> JsonValue:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = kind[0] if kind else None
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                least = schema.get("minItems")
                number = max(least if isinstance(least, int) else 0, 1 if depth < _SHALLOW else 0)
                number = 0 if schema.get("maxItems") == 0 else number
                return [self.value(schema.get("items", {"type": "string"}), depth + 1) for _ in range(number)]
            case "string":
                return self._string(schema)
            case "integer" | "number":
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
            case _:
                raise BadSchema(f"Invalid type: {kind}")

    def _object(self, schema: dict[str, JsonValue], depth: int) -> JsonValue:
        properties, required = schema.get("properties"), schema.get("required")
        rules = properties if isinstance(properties, dict) else {}
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        if depth < _SHALLOW:
            names += [name for name in rules if name not in names]
        return {name: self.value(rules.get(name, {"type": "string"}), depth + 1) for name in names}

    def _string(self, schema: dict[str, JsonValue]) -> str:
        kind = schema.get("format")
        if isinstance(kind, str) and kind in _FORMATS:
            return _FORMATS[kind]
        text = self._words[self._strings % len(self._words)]
        self._strings += 1
        least, most = schema.get("minLength"), schema.get("maxLength")
        if isinstance(least, int) and len(text) < least:
            text = (text * least)[:least]
        return text[:most] if isinstance(most, int) else text

    def _referred(self, reference: JsonValue) -> JsonValue:
        node = self._root
        for key in str(reference).removeprefix("#").strip("/").split("/"):
            if key:
                key = key.replace("~1", "/").replace("~0", "~")
                if not isinstance(node, dict) or key not in node:
                    raise BadSchema(f"{reference} leads nowhere in the schema")
                node = node[key]
        return node

    def _merged(self, parts: Sequence[JsonValue]) -> JsonValue:
        merged: dict[str, JsonValue] = {}
        for part in parts:
            if not isinstance(part, dict):
                continue
            for name, rule in part.items():
                old = merged.get(name)
                if isinstance(old, dict) and isinstance(rule, dict):
                    merged[name] = {**old, **rule}
                elif isinstance(old, list) and isinstance(rule, list) and name in ("required", "allOf"):
                    merged[name] = [*old, *rule]
                else:
                    merged[name] = rule
        return merged


def _number(schema: dict[str, JsonValue], *, whole: bool) -> int | float:
    step = _bound(schema, "multipleOf") or 1.0
    least, most = _bound(schema, "minimum"), _bound(schema, "maximum")
    above, below = _bound(schema, "exclusiveMinimum"), _bound(schema, "exclusiveMaximum")
    if least is None and above is not None:
        least = above + (step if whole or below is None else min(step, (below - above) / 2))
    if most is None and below is not None:
        most = below - step
    value = least if least is not None else min(7.0, most) if most is not None else 7.0
    if "multipleOf" in schema or whole:
        value = step * (ceil(value / step) if least is not None else floor(value / step))
    return int(value) if whole else value


def _bound(schema: dict[str, JsonValue], name: str) -> float | None:
    bound = schema.get(name)
    return float(bound) if isinstance(bound, int | float) and not isinstance(bound, bool) else None
