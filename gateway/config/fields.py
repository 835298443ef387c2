"""What single values of the configuration are, and what every block of it is."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue

from gateway.config import values
from gateway.config.units import DURATION_PATTERN, SIZE_PATTERN, parse_duration_s, parse_size_bytes


def _duration_s(value: object) -> object:
    return parse_duration_s(value) if isinstance(value, str) else value


def _size_bytes(value: object) -> object:
    return parse_size_bytes(value) if isinstance(value, str) else value


def _more_than_zero(value: float) -> float:
    if not value > 0:
        raise ValueError("must be more than 0")
    return value


def _not_negative(value: float) -> float:
    if not value >= 0:
        raise ValueError("must not be less than 0")
    return value


def _credential(value: SecretStr) -> SecretStr:
    return SecretStr(values.credential(value.get_secret_value()))


_DURATION_SCHEMA: Final[JsonSchemaValue] = {
    "type": "string",
    "pattern": DURATION_PATTERN,
    "examples": ["500ms", "2s", "30m"],
}
_SIZE_SCHEMA: Final[JsonSchemaValue] = {"type": "string", "pattern": SIZE_PATTERN, "examples": ["256KiB", "64MiB"]}

Duration = Annotated[
    float,
    BeforeValidator(_duration_s),
    AfterValidator(_more_than_zero),
    WithJsonSchema(_DURATION_SCHEMA),
]
DurationOrZero = Annotated[
    float,
    BeforeValidator(_duration_s),
    AfterValidator(_not_negative),
    WithJsonSchema({**_DURATION_SCHEMA, "type": ["string", "integer"], "minimum": 0, "maximum": 0}),
]
Size = Annotated[
    int,
    BeforeValidator(_size_bytes),
    AfterValidator(_more_than_zero),
    WithJsonSchema(_SIZE_SCHEMA),
]
Count = Annotated[int, Field(ge=1)]
Secret = Annotated[SecretStr, AfterValidator(_credential)]
Name = Annotated[str, AfterValidator(values.model_name)]
Address = Annotated[str, AfterValidator(values.address)]
HeaderName = Annotated[str, AfterValidator(values.header_name)]
SeenHeaderName = Annotated[str, AfterValidator(values.seen_header_name)]
KeptHeaderName = Annotated[str, AfterValidator(values.kept_header_name)]
HeaderValue = Annotated[str, AfterValidator(values.header_value)]
Label = Annotated[str, AfterValidator(values.endpoint_id)]


class Block(BaseModel):
    """Some keys that belong together, and no others."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        hide_input_in_errors=True,  # the input may be a credential
    )
