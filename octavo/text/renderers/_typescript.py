"""JSON schemas as TypeScript, as harmony declares parameters. Source: openai-harmony, whose indenting is part of what the model knows."""

import json
from collections.abc import Iterator
from typing import Any

_SIMPLE = {"number": "number", "integer": "number", "boolean": "boolean"}


def type_of(schema: Any, indent: str = "") -> str:
    """The type of a schema; `any` where there is none."""
    if not isinstance(schema, dict):
        return "any"
    if isinstance(variants := schema.get("oneOf"), list):
        return "".join(f"\n{indent} | {_variant(variant, indent, is_described=True, is_bare=False)}" for variant in variants)
    kind = schema.get("type")
    if isinstance(kind, list) and (names := [_SIMPLE.get(name, name) for name in kind if isinstance(name, str)]):
        return " | ".join(names)
    if not isinstance(kind, str):
        return "any"
    match kind:
        case "object":
            return _object(schema, indent)
        case "string":
            values = [f'"{value}"' for value in schema["enum"] if isinstance(value, str)] if _is_enum(schema) else []
            return " | ".join(values) or "string"
        case "array":
            return f"{type_of(schema['items'], indent)}[]" if "items" in schema else "Array<any>"
    return _SIMPLE.get(kind, "any")


def _is_enum(schema: dict[str, Any]) -> bool:
    return isinstance(schema.get("enum"), list) and bool(schema["enum"])


def _default(schema: dict[str, Any], is_bare: bool = True) -> str:
    """A default as it is told: strings in quotes. is_bare: but for one of several words."""
    value = schema["default"]
    if isinstance(value, str):
        return f"default: {value}" if is_bare and _is_enum(schema) else f'default: "{value}"'
    return f"default: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"


def _nullable(schema: Any, text: str) -> str:
    return f"{text} | null" if isinstance(schema, dict) and schema.get("nullable") is True and "null" not in text else text


def _variant(schema: Any, indent: str, is_described: bool, is_bare: bool = True) -> str:
    text = _nullable(schema, type_of(schema, f"{indent}   "))
    if not isinstance(schema, dict):
        return text
    told = [schema["description"]] if is_described and isinstance(schema.get("description"), str) else []
    if "default" in schema:
        told.append(_default(schema, is_bare))
    return f"{text} // {' '.join(told)}" if told else text


def _object(schema: dict[str, Any], indent: str) -> str:
    told = f"{indent}// {schema['description']}\n" if isinstance(schema.get("description"), str) else ""
    properties, required = schema.get("properties"), schema.get("required")
    required = required if isinstance(required, list) else []
    lines = (
        _property(name, value, name not in required, indent) for name, value in (properties.items() if isinstance(properties, dict) else ())
    )
    return f"{told}{{\n{''.join(lines)}{indent}}}"


def _property(name: str, schema: Any, is_optional: bool, indent: str) -> str:
    given = schema if isinstance(schema, dict) else {}
    head = "".join(f"{indent}//{line}\n" for line in _comments(given))
    head += f"{indent}{name}{'?' if is_optional else ''}:"
    if isinstance(variants := given.get("oneOf"), list):
        told = given.get("description")
        described = ((index > 0 or told is None) and _get(variant, "description") != told for index, variant in enumerate(variants))
        texts = (f"\n{indent} | {_variant(variant, indent, is_described)}" for variant, is_described in zip(variants, described))
        return f"{head}{''.join(texts)}\n{indent},\n"
    text = _nullable(schema, type_of(schema, f"{indent}    "))
    return f"{head} {text},{f' // {_default(given)}' if 'default' in given else ''}\n"


def _get(schema: Any, key: str) -> Any:
    return schema.get(key) if isinstance(schema, dict) else None


def _comments(schema: dict[str, Any]) -> Iterator[str]:
    """The lines above a property, behind their slashes."""
    if isinstance(schema.get("title"), str):
        yield from (f" {schema['title']}", "")
    described = schema.get("description") if isinstance(schema.get("description"), str) else None
    variants = schema.get("oneOf")
    if described is not None and not isinstance(variants, list):
        yield f" {described}"
    if isinstance(schema.get("examples"), list) and schema["examples"]:
        yield " Examples:"
        yield from (f' - "{example}"' for example in schema["examples"] if isinstance(example, str))
    if isinstance(variants, list):
        if described is not None and not (variants and _get(variants[0], "description") == described):
            yield f" {described}"
        if "default" in schema:
            yield f" {_default(schema)}"
