"""response_format of a chat or completion request, as the grammar that it asks for."""

import json
from collections.abc import Mapping
from typing import Any

from octavo.errors import RequestError
from octavo.protocol.sampling_params import StructuredOutputsParams

FIELD = "response_format"


def structured_outputs_for(response_format: Mapping[str, Any] | None) -> StructuredOutputsParams | None:
    """{"type": "text" | "json_object" | "json_schema" | "structural_tag", ...} as parameters; None for free text. Raises RequestError."""
    if response_format is None:
        return None
    kind = response_format.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return StructuredOutputsParams(json_object=True)
    if kind == "json_schema":
        described = response_format.get("json_schema")
        schema = described.get("schema", described.get("json_schema")) if isinstance(described, Mapping) else None
        if not isinstance(schema, (dict, bool)) or not isinstance(described, Mapping) or not isinstance(described.get("name"), str):
            raise RequestError(f"{FIELD}: json_schema needs an object with a name and a schema", parameter=FIELD)
        return StructuredOutputsParams(json=schema if isinstance(schema, dict) else json.dumps(schema))
    if kind == "structural_tag":
        return StructuredOutputsParams(structural_tag=json.dumps({k: v for k, v in response_format.items() if v is not None}))
    raise RequestError(f"{FIELD}: type must be text, json_object, json_schema or structural_tag, not {kind!r:.60}", parameter=FIELD)
