"""The JSON Schema (draft 2020-12) of a spec file, made from the declared fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox_console.model.quantities import DURATION_PATTERN, SIZE_PATTERN
from sandbox_console.model.spec_fields import FIELDS, Kind, SpecField

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TEXTS = {"type": "array", "items": {"type": "string"}}
_SHAPES: Mapping[Kind, Mapping[str, Any]] = {
    Kind.TEXT: {"type": "string"},
    Kind.WORDS: _TEXTS,
    Kind.LIST: _TEXTS,
    Kind.TABLE: {"type": "object", "additionalProperties": {"type": "string"}},
    Kind.NUMBER: {"type": "number"},
    Kind.COUNT: {"type": "integer"},
    Kind.SIZE: {"type": ["integer", "string"], "pattern": SIZE_PATTERN},
    Kind.DURATION: {"type": ["number", "string"], "pattern": DURATION_PATTERN},
    Kind.FLAG: {"type": "boolean"},
    Kind.CHOICE: {"type": "string"},
}


def spec_schema() -> dict[str, Any]:
    """The schema. It says what each value can be; only the console can check which values fit together."""
    return {
        "$schema": DRAFT,
        "title": "sandbox-console spec",
        "description": "One sandbox, as sandbox-console create -f reads it in TOML or JSON.",
        "type": "object",
        "required": ["name"],
        "additionalProperties": False,
        "properties": {"$schema": {"type": "string"}} | {field.name: _property(field) for field in FIELDS},
    }


def _property(field: SpecField) -> dict[str, Any]:
    made: dict[str, Any] = {**_SHAPES[field.kind], "title": field.label, "description": _description(field)}
    if field.choices:
        made["enum"] = list(field.choices)
    if field.pattern:
        made["pattern"] = field.pattern
    if field.longest:
        made["maxLength"] = field.longest
    if field.least is not None:
        made["minimum"] = field.least
    if field.above is not None:
        made["exclusiveMinimum"] = field.above
    if field.default is not None:
        made["default"] = field.default
    if field.example is not None:
        made["examples"] = [field.example]
    return made


def _description(field: SpecField) -> str:
    return f"{field.help} ({field.unit})" if field.unit else field.help
