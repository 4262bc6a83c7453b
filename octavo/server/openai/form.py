"""Form: what the answer of a request must look like, as response_format or structured_outputs ask."""

from typing import Any

import msgspec

from octavo.errors import RequestError
from octavo.grammar.response_format import structured_outputs_for
from octavo.protocol.sampling_params import StructuredOutputsParams


def read_form(response_format: dict[str, Any] | None, structured_outputs: dict[str, Any] | None) -> StructuredOutputsParams | None:
    """The form that a request asks for; None for free text. Raises RequestError that names the field."""
    by_format = structured_outputs_for(response_format)
    by_grammar = _read(structured_outputs)
    if by_format is not None and by_grammar is not None:
        raise RequestError("structured_outputs and response_format exclude each other", "send one of them", "structured_outputs")
    return by_grammar if by_format is None else by_format


def form_field(request: Any) -> str:
    """The field that asks for a form."""
    return "structured_outputs" if request.response_format is None or request.structured_outputs else "response_format"


def _read(given: dict[str, Any] | None) -> StructuredOutputsParams | None:
    if not given:
        return None
    known = StructuredOutputsParams.__struct_fields__
    if unknown := next((name for name in given if name not in known), None):
        raise RequestError(f"structured_outputs has no {unknown!r}", f"it takes {', '.join(known)}", "structured_outputs")
    try:
        return msgspec.convert({name: value for name, value in given.items() if value is not None}, StructuredOutputsParams)
    except msgspec.ValidationError as error:
        raise RequestError(f"structured_outputs: {error}", parameter="structured_outputs") from None
