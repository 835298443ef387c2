"""The JSON schema of the configuration file, and the tree of its keys that is read from it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from gateway.config.models import Config
from gateway.config.units import DURATION_PATTERN, SIZE_PATTERN, format_duration, format_size

ANY: Final = "*"  # stands for the name of a pool or header and for an index

KeyPath = tuple[str, ...]
Location = tuple[str | int, ...]


class _FileSchema(GenerateJsonSchema):
    """Writes defaults as they stand in a file: with their units, and at the keys rather than at whole blocks."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if isinstance(schema.get("default"), BaseModel):
            return self.generate_inner(schema["schema"])
        written = super().default_schema(schema)
        default = written.get("default")
        if written.get("pattern") == DURATION_PATTERN and default is not None:
            written["default"] = format_duration(default)
        elif written.get("pattern") == SIZE_PATTERN and default is not None:
            written["default"] = format_size(default)
        return written


def config_schema() -> JsonSchemaValue:
    """Returns the JSON schema (draft 2020-12) of a file whose ``${VARIABLES}`` have been filled in."""
    schema = Config.model_json_schema(schema_generator=_FileSchema)
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        **schema,
        "title": "Weir configuration",
        "description": "Values are checked after ${VARIABLE} and ${VARIABLE:-default} have been filled in.",
    }


@cache
def blocks() -> dict[KeyPath, dict[str, JsonSchemaValue]]:
    """Returns each mapping of fixed keys: where it stands (names and indexes as ``*``), and its keys' schemas."""
    schema = Config.model_json_schema(schema_generator=_FileSchema)
    return dict(_blocks((), schema, cast(dict[str, JsonSchemaValue], schema["$defs"])))


@cache
def key_paths() -> frozenset[KeyPath]:
    """Returns the path of every key, names and indexes as ``*``."""
    return frozenset((*block, key) for block, keys in blocks().items() for key in keys)


def key_path(location: Location) -> KeyPath:
    """Returns the location in a file as a path of keys, with ``*`` for names and indexes."""
    path: KeyPath = ()
    for part in location:
        fixed = blocks().get(path)
        path = (*path, str(part) if fixed is not None and isinstance(part, str) else ANY)
    return path


def _blocks(
    path: KeyPath, schema: JsonSchemaValue, definitions: dict[str, JsonSchemaValue]
) -> Iterator[tuple[KeyPath, dict[str, JsonSchemaValue]]]:
    reference: str | None = schema.get("$ref")
    if reference is not None:
        yield from _blocks(path, definitions[reference.rpartition("/")[2]], definitions)
    for choice in schema.get("anyOf", ()):
        yield from _blocks(path, choice, definitions)
    if "properties" in schema:
        yield path, schema["properties"]
        for key, child in schema["properties"].items():
            yield from _blocks((*path, key), child, definitions)
    for each in ("items", "additionalProperties"):
        entry: Any = schema.get(each)
        if isinstance(entry, dict):
            yield from _blocks((*path, ANY), cast(JsonSchemaValue, entry), definitions)
