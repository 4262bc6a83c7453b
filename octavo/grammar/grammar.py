"""A grammar: what a request's structured_outputs ask for, in the words of the back ends. What is wrong with it is found here."""

import json
from dataclasses import dataclass, field
from typing import Any

import msgspec

from octavo.config.config import GrammarConfig
from octavo.errors import RequestError
from octavo.grammar.json_schema import JsonOptions, read_schema
from octavo.grammar.lark import is_ebnf, literal, to_lark
from octavo.grammar.regex import to_lark_regex
from octavo.grammar.structural_tag import Specials, TagGrammar, plain
from octavo.protocol.sampling_params import StructuredOutputsParams

KINDS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
FIELD = "structured_outputs"
MAX_CHOICES = 20_000
MAX_REGEX = 65_536  # characters


@dataclass(frozen=True, slots=True)
class Grammar:
    """kind: one of KINDS. Of schema, text and sides, those are set that the kind has.

    schema: of json and json_object, simplified. text: of regex the pattern, else Lark. sides: grammars that the Lark names. ebnf: what the
    Lark was translated from.
    """

    kind: str
    text: str = ""
    schema: Any = None
    sides: tuple[tuple[str, str], ...] = ()
    options: JsonOptions = field(default_factory=JsonOptions)
    ebnf: str | None = None

    @property
    def is_json(self) -> bool:
        return self.kind in ("json", "json_object")

    @property
    def key(self) -> bytes:
        """Equal for equal grammars."""
        return msgspec.json.encode([self.kind, self.text, self.schema, self.sides, self.options.guidance()])


def kind_of(params: StructuredOutputsParams) -> str:
    """The one of KINDS that is given. Raises RequestError for none, and for several."""
    given = [kind for kind in KINDS if getattr(params, kind) is not None]
    if len(given) != 1:
        several = f"not {' and '.join(given)}" if given else "and none is given"
        raise RequestError(f"{FIELD}: exactly one of {', '.join(KINDS)} must be given, {several}", parameter=FIELD)
    return given[0]


def grammar_of(params: StructuredOutputsParams, config: GrammarConfig, specials: Specials = plain) -> Grammar:
    """The grammar that parameters ask for. Raises RequestError, naming the field."""
    options = _options(params, config)
    match kind_of(params):
        case "json":
            return Grammar("json", schema=read_schema(params.json, options, "json"), options=options)
        case "json_object":
            if params.json_object is not True:
                raise _wrong("json_object", "it must be true, or left away")
            return Grammar("json_object", schema={"type": "object"}, options=options)
        case "regex":
            return Grammar("regex", _checked_regex(params.regex))
        case "choice":
            return Grammar("choice", _alternatives(params.choice))
        case "grammar":
            if not isinstance(params.grammar, str):
                raise _wrong("grammar", "it must be a string")
            return Grammar("grammar", to_lark(params.grammar), ebnf=params.grammar if is_ebnf(params.grammar) else None)
    tag = params.structural_tag
    if not isinstance(tag, (str, dict)):
        raise _wrong("structural_tag", "it must be a JSON string")
    made = TagGrammar(tag, options, specials)
    return Grammar("structural_tag", made.text, sides=tuple((side["name"], side["lark_grammar"]) for side in made.sides))


def _options(params: StructuredOutputsParams, config: GrammarConfig) -> JsonOptions:
    if not isinstance(params.whitespace_pattern, (str, type(None))):
        raise _wrong("whitespace_pattern", "it must be a string")
    return JsonOptions(
        is_compact=bool(params.disable_any_whitespace or config.disable_any_whitespace),
        closes_objects=bool(params.disable_additional_properties or config.disable_additional_properties),
        whitespace=params.whitespace_pattern,
    )


def _checked_regex(pattern: Any) -> str:
    if not isinstance(pattern, str):
        raise _wrong("regex", "it must be a string")
    if len(pattern) > MAX_REGEX:
        raise _wrong("regex", f"it has {len(pattern)} characters, and {MAX_REGEX} is the most")
    return pattern


def _alternatives(choices: Any) -> str:
    """Lark for one text out of several."""
    if not isinstance(choices, (list, tuple)) or not choices or not all(isinstance(choice, str) for choice in choices):
        raise _wrong("choice", "it must be a list of strings that is not empty")
    if len(choices) > MAX_CHOICES:
        raise _wrong("choice", f"it has {len(choices)} entries, and {MAX_CHOICES} is the most")
    return "start: " + " | ".join(literal(choice) for choice in dict.fromkeys(choices))


def as_guidance(grammar: Grammar) -> str:
    """The grammar as llguidance reads it."""
    if grammar.is_json:
        if isinstance(grammar.schema, bool):
            schema: Any = grammar.schema
        else:
            schema = {**grammar.schema, "x-guidance": grammar.options.guidance()}
        return json.dumps({"grammars": [{"json_schema": schema}]})
    if grammar.kind == "regex":
        return json.dumps({"grammars": [{"lark_grammar": f"start: /{to_lark_regex(grammar.text)}/"}]})
    sides = [{"name": name, "lark_grammar": text} for name, text in grammar.sides]
    return json.dumps({"grammars": [{"name": "start", "lark_grammar": grammar.text}, *sides]})


def _wrong(name: str, fact: str) -> RequestError:
    return RequestError(f"{FIELD}.{name}: {fact}", parameter=FIELD)
