"""Values for JSON schemas, judged by a validator."""

from __future__ import annotations

import json
from importlib import import_module

import pytest
from pydantic import JsonValue

from gateway.simulator.json_values import BadSchema, value_for

SCHEMAS = [
    '{"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}',
    '{"properties": {"a": {"type": ["number", "null"]}, "b": {"type": "boolean"}, "c": {"type": "null"}}}',
    '{"type": "object", "required": ["x"], "additionalProperties": false, "properties": {"x": {"const": 4}}}',
    '{"type": "array", "items": {"type": "integer", "minimum": 3}, "minItems": 2, "maxItems": 2}',
    '{"type": "array", "items": {"type": "integer"}, "maxItems": 0}',
    '{"type": "string", "minLength": 30, "maxLength": 31}',
    '{"type": "string", "maxLength": 2}',
    '{"type": "integer", "exclusiveMinimum": 3, "maximum": 4}',
    '{"type": "integer", "maximum": -5}',
    '{"type": "integer", "exclusiveMaximum": 0}',
    '{"type": "integer", "minimum": 2.5, "multipleOf": 4}',
    '{"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5}',
    '{"type": "number", "minimum": 0.25, "maximum": 0.25}',
    '{"enum": ["celsius", "fahrenheit"]}',
    '{"type": "string", "format": "date-time"}',
    '{"anyOf": [{"type": "integer"}, {"type": "null"}]}',
    '{"type": "object", "oneOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}]}',
    '{"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"required": ["b"]}]}',
    '{"$defs": {"p/q": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/p~1q"}}, "required": ["a"]}',
    '{"type": "object", "required": ["v", "next"], "properties": {"v": {"type": "integer"},'
    ' "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}',
    '{"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}',
    "{}",
]


@pytest.mark.parametrize("text", SCHEMAS)
def test_a_value_satisfies_its_schema(text: str) -> None:
    schema = json.loads(text)
    validator = import_module("jsonschema").Draft202012Validator  # its types are in a package of their own
    validator(schema, format_checker=validator.FORMAT_CHECKER).validate(value_for(schema, ["Paris", "weather"]))


def test_words_of_the_prompt_fill_strings_and_choose_from_enums() -> None:
    schema: JsonValue = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "what": {"type": "string"}, "unit": {"enum": ["c", "Weather"]}},
    }
    assert value_for(schema, ["Paris", "weather"]) == {"city": "Paris", "what": "weather", "unit": "Weather"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "nonsense"}, "Invalid type: nonsense"),
        ({"$ref": "#/$defs/none"}, "leads nowhere"),
        ({"$ref": "#"}, "no end"),
        ({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}, "no end"),
    ],
)
def test_a_schema_that_nothing_satisfies_is_refused(schema: JsonValue, message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        value_for(schema, ["x"])
