"""The environment that chat templates run in: nothing can be changed or reached from it, and it cannot run for long or grow large.

A template is a program from a stranger. Jinja's immutable sandbox keeps it from reaching anything; here each thing it can do is also
counted. Every call, filter, test, attribute, subscript, operator and turn of a loop passes through the environment, which looks at the
clock; whatever makes text or lists (operators, joining, formatting, filters, methods, output) is measured before it is made, where its size
can grow faster than its inputs, and charged after. A template that goes over a limit ends with LimitExceeded, in its own thread.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import wraps
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

TIME_LIMIT_S = 3.0
MAX_TEXT = 16 * 2**20  # characters of one value, and so of the whole output
MAX_TOTAL = 8 * MAX_TEXT  # characters and elements made by one rendering
MAX_INTEGER_BITS = 4096
MAX_WIDTH = 1000  # of padding, indenting, formatting
_NOT_ASCII = re.compile(r"[^\x00-\x7f\ufdd0-\ufdd4]")
_PIECES_PER_LOOK = 64  # at the clock
_PADDING_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_PADDING_FILTERS = frozenset({"center", "indent", "wordwrap", "batch", "slice", "truncate", "tojson", "round"})
_SPELLING_FILTERS = frozenset({"tojson", "string", "pprint", "xmlattr", "urlencode", "escape", "e", "forceescape", "sum"})
_TEXT_FILTERS = frozenset({"string", "escape", "e", "forceescape", "upper", "lower", "title", "capitalize", "trim", "replace", "striptags"})
_SPELLED_MARK = re.compile(r"(?<!\\)((?:\\\\)*)\\u(fdd[0-4])")  # a mark as repr() spells it; a backslash of the text itself is doubled
_FIELD_OF_ARGUMENT = re.compile(r"\{[^{}:!]*[.\[]")  # {0[key]}, {name.attribute}
_FORMAT_TOO_WIDE = re.compile(r"%[-+ #0]*(?:\*|\d{4,}|\d*\.(?:\*|\d{4,}))|\{[^{}]*:[^{}]*(?:\{|\d{4,})")


class LimitExceeded(jinja2.TemplateError):
    """The template took too long, or made too much."""


class _Budget(threading.local):
    deadline = float("inf")
    made = 0


class GenerationExtension(Extension):
    """{% generation %} ... {% endgeneration %} marks what the assistant says, for training; rendering passes through it."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class LimitedNamespace(Namespace):
    """namespace(): names that begin with an underscore are refused. Its attributes are the template's own."""

    def __init__(*arguments: Any, **attributes: Any) -> None:  # like Namespace, so that a template may set `self`
        values = dict(*arguments[1:], **attributes)
        for name in values:
            _check_attribute(name)
        Namespace.__init__(arguments[0], values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        Namespace.__setitem__(self, name, value)


def _check_attribute(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace cannot have the attribute {name!r}")


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox with the helpers that chat templates expect, and limits. One for all templates and threads."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        # not optimized: folding constants would run them at compile time, before any limit is set
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[GenerationExtension, loopcontrols], finalize=self._finalize
        )
        self._budget = _Budget()
        self.concat = self._join  # type: ignore[method-assign,assignment]
        self.filters["tojson"] = self._tojson
        self.filters = {name: self._limited_filter(name, function) for name, function in self.filters.items()}
        self.tests = {name: self._counted(function) for name, function in self.tests.items()}
        del self.globals["lipsum"]
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
            "namespace": LimitedNamespace,
            "dict": _make_dict,
        }

    def start(self, time_limit_s: float = TIME_LIMIT_S) -> None:
        """Begin a rendering in this thread."""
        self._budget.deadline = time.monotonic() + time_limit_s
        self._budget.made = 0

    # what the compiled template calls

    def turn(self) -> str:
        """One step of a template."""
        if time.monotonic() > self._budget.deadline:
            raise LimitExceeded("the chat template ran too long")
        return ""

    def charge(self, value: Any) -> Any:
        """Count what was made; gives `value` back."""
        if isinstance(value, (str, list, tuple, dict)):
            self._reserve(len(value))
            self._budget.made += len(value)
        return value

    def _reserve(self, size: int) -> None:
        if size > MAX_TEXT or self._budget.made + size > MAX_TOTAL:
            raise LimitExceeded(f"the chat template made a value of more than {MAX_TEXT} characters, or too many such")

    def _join(self, pieces: Iterable[str]) -> str:
        """ "".join, measured: of the whole output, of macros and of blocks."""
        kept, size = [], 0
        for index, piece in enumerate(pieces):
            size += len(piece)
            if size > MAX_TEXT or index % _PIECES_PER_LOOK == 0:
                self.turn()
                self._reserve(size)
            kept.append(piece)
        self._reserve(size)
        self._budget.made += size
        return "".join(kept)

    def text_of(self, value: Any) -> str:
        """str(value), measured first."""
        return value if type(value) is str else str(self._finalize(value))

    def join_text(self, *values: Any) -> str:
        """The operator ~."""
        return self._join(map(self.text_of, values))

    def _finalize(self, value: Any) -> Any:
        """Values that are put out: containers are measured before they are spelled, and the marks of rendered.py in them stay marks."""
        if isinstance(value, (list, tuple, dict)):
            self._reserve(self._measure(value))
            return _SPELLED_MARK.sub(lambda match: match[1] + chr(int(match[2], 16)), str(value))
        return value

    def getattr(self, obj: Any, attribute: str) -> Any:
        self.turn()
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        self.turn()
        value = super().getitem(obj, argument)
        return self.charge(value) if isinstance(argument, slice) else value

    def call(self, context: Any, function: Any, /, *arguments: Any, **options: Any) -> Any:
        self.turn()
        method = getattr(function, "__wrapped__", function)  # the sandbox wraps str.format
        if isinstance(owner := getattr(method, "__self__", None), str):
            arguments = self._check_method(owner, method.__name__, arguments, options)
        return self.charge(super().call(context, function, *arguments, **options))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.turn()
        if operator == "*":
            self._check_product(left, right)
        elif operator == "**":
            if isinstance(left, int) and isinstance(right, int) and left.bit_length() * max(right, 0) > MAX_INTEGER_BITS:
                raise LimitExceeded("the chat template computed a number that is too large")
        elif operator == "%" and isinstance(left, str):
            self._check_format(left, right)
            right = self._spell_arguments(right) if isinstance(right, (tuple, dict)) else self._finalize(right)
        elif operator == "+" and isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
            self._reserve(len(left) + len(right))
        return self.charge(super().call_binop(context, operator, left, right))

    # what is measured before it is made

    def _measure(self, value: Any) -> int:
        """Characters that a value takes when spelled, roughly; stops at the limit, so that shared parts cannot multiply the work."""
        size, items, stack = 0, 0, [value]
        while stack and size <= MAX_TEXT:
            item = stack.pop()
            items += 1
            if items % 1024 == 0:
                self.turn()
            if isinstance(item, str):
                size += len(item) + 4
            elif isinstance(item, dict):
                size += 8 * len(item)
                stack.extend(item.keys())
                stack.extend(item.values())
            elif isinstance(item, (list, tuple)):
                size += 4 * len(item)
                stack.extend(item)
            else:
                size += 24
        return size

    def _check_product(self, left: Any, right: Any) -> None:
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, (str, list, tuple)) and isinstance(count, int):
                self._reserve(len(sequence) * max(count, 0))
                return
        if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MAX_INTEGER_BITS:
            raise LimitExceeded("the chat template computed a number that is too large")

    def _check_format(self, form: str, arguments: Any) -> None:
        if _FORMAT_TOO_WIDE.search(form):
            raise LimitExceeded("the chat template formats with a width that is too large or not fixed")
        values = arguments if isinstance(arguments, (tuple, list, dict)) else (arguments,)
        self._reserve(len(form) + self._measure(values) * (form.count("{") + form.count("%")))

    def _check_method(self, owner: str, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
        """Measure what a method of str will make. Returns its arguments, an iterable as a list."""
        if name in _PADDING_METHODS:
            self._check_widths(arguments, options)
            if name == "expandtabs":
                self._reserve(len(owner) + owner.count("\t") * int(arguments[0] if arguments else options.get("tabsize", 8)))
        elif name in ("format", "format_map"):
            self._check_format(owner, [*arguments, options])
            if name == "format" and not _FIELD_OF_ARGUMENT.search(owner):
                options |= self._spell_arguments(options)
                return tuple(self._spell_arguments(arguments))
        elif name == "replace":
            self._check_replace(owner, *arguments[:2])
        elif name == "join" and arguments:
            return (self._check_join(owner, arguments[0]), *arguments[1:])
        elif name == "translate":
            raise LimitExceeded("the chat template uses str.translate, which is not offered")
        return arguments

    def _spell_arguments(self, values: Any) -> Any:
        """The arguments of a format, those that are containers as text."""
        if isinstance(values, dict):
            return {name: self._finalize(value) for name, value in values.items()}
        return tuple(map(self._finalize, values))

    def _check_join(self, separator: Any, values: Any) -> list[Any]:
        items = list(values)
        self._reserve(self._measure(items) + len(str(separator)) * len(items))
        return [self._finalize(item) for item in items]

    def _check_replace(self, text: Any, old: Any = "", new: Any = "") -> None:
        if isinstance(text, str) and isinstance(old, str) and isinstance(new, str):
            self._reserve(len(text) + (text.count(old) if old else len(text) + 1) * len(new))

    def _check_widths(self, arguments: Iterable[Any], options: dict[str, Any]) -> None:
        for value in (*arguments, *options.values()):
            if (isinstance(value, int) and value > MAX_WIDTH) or (isinstance(value, str) and len(value) > MAX_WIDTH):
                raise LimitExceeded(f"the chat template pads by more than {MAX_WIDTH}")

    def _limited_filter(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        skip = 1 if getattr(function, "jinja_pass_arg", None) is not None else 0  # environment or context comes first

        @wraps(function)
        def limited(*arguments: Any, **options: Any) -> Any:
            self.turn()
            if len(arguments) > skip:
                first, value, rest = arguments[:skip], arguments[skip], arguments[skip + 1 :]
                arguments = (*first, self._check_filter(name, value, rest, options), *rest)
            return self.charge(function(*arguments, **options))

        return limited

    def _check_filter(self, name: str, value: Any, rest: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Measure what a filter will make of `value`. Returns the value, an iterable that is joined as a list."""
        if name in _PADDING_FILTERS:
            self._check_widths(rest, options)
        if name == "replace":
            self._check_replace(value, *rest[:2])
        elif name == "format":
            self._check_format(str(value), [*rest, options])
        elif name == "join":
            return self._check_join(rest[0] if rest else options.get("d", ""), value)
        elif name == "indent" and isinstance(value, str):
            width = rest[0] if rest else options.get("width", 4)
            self._reserve(len(value) + (value.count("\n") + 1) * (len(width) if isinstance(width, str) else int(width)))
        elif name in _SPELLING_FILTERS and isinstance(value, (list, tuple, dict)):
            self._reserve(self._measure(value))
        return self._finalize(value) if name in _TEXT_FILTERS else value

    def _tojson(
        self, value: Any, ensure_ascii: bool = False, indent: int | str | None = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        """JSON without HTML escapes, as chat templates expect; the marks of rendered.py stay marks."""
        encoder = json.JSONEncoder(ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
        text = encoder.encode(value) if indent is None else self._join(encoder.iterencode(value))
        return _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text) if ensure_ascii else text

    def _counted(self, function: Any) -> Callable[..., Any]:
        @wraps(function)
        def counted(*arguments: Any, **options: Any) -> Any:
            self.turn()
            return function(*arguments, **options)

        return counted

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _count_turns(tree)
        tree.set_environment(self)
        return tree


def _count_turns(node: nodes.Node) -> None:
    """Put a call of `turn` at the head of each loop's body, and send ~ through `join_text`."""
    for name, field in node.iter_fields():
        if isinstance(field, list):
            field[:] = [_rewritten(item) if isinstance(item, nodes.Node) else item for item in field]
        elif isinstance(field, nodes.Node):
            setattr(node, name, _rewritten(field))
    if isinstance(node, nodes.For):
        turn = nodes.ExprStmt(nodes.Call(nodes.EnvironmentAttribute("turn"), [], [], None, None), lineno=node.lineno)
        node.body.insert(0, turn)


def _rewritten(node: nodes.Node) -> nodes.Node:
    _count_turns(node)
    if isinstance(node, nodes.Concat):
        return nodes.Call(nodes.EnvironmentAttribute("join_text"), node.nodes, [], None, None, lineno=node.lineno)
    return node


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form[:MAX_WIDTH])


def _make_dict(*arguments: Any, **items: Any) -> dict[Any, Any]:
    return dict(*arguments, **items)
