"""Chat templates: a conversation in, the text that the model was trained on out. What a template does wrong is the request's error.

A template renders in the thread that asks, within limits of time and size (sandbox.py). Compiled templates are remembered.
"""

import traceback
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta, nodes

from octavo import environment
from octavo.errors import ConfigError, RequestError
from octavo.text import conversation as conversations
from octavo.text import final_message
from octavo.text.rendered import Controls, Rendered, without_marks
from octavo.text.sandbox import LimitedEnvironment

MAX_SOURCE = 2**20
_RESERVED = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize", "content_format"}
)
SWITCHES = frozenset({"enable_thinking", "thinking"})  # variables of templates
EFFORT = "reasoning_effort"
_environment = LimitedEnvironment()


class ChatTemplate:
    """One compiled template.

    content_format: how it reads a message's content: "string"; "openai", a list of parts; or "as_given", either. reads: the variables.
    """

    def __init__(self, source: str) -> None:
        if len(source) > MAX_SOURCE:
            raise RequestError(f"the chat template has {len(source)} characters, more than {MAX_SOURCE}", parameter="chat_template")
        _environment.start()
        try:
            tree = _environment.parse(source)
            self.content_format = _content_format(tree)
            self.reads = frozenset(meta.find_undeclared_variables(tree))
            self._template = _environment.from_string(source)
        except jinja2.TemplateSyntaxError as fault:
            raise RequestError(f"the chat template is wrong in line {fault.lineno}: {fault.message}", parameter="chat_template") from fault
        except (RecursionError, MemoryError, SyntaxError, ValueError) as fault:
            raise RequestError("the chat template is nested too deeply to be compiled", parameter="chat_template") from fault
        self.source = source

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        content_format: str = "auto",
        variables: Mapping[str, Any] | None = None,
        special_tokens: Mapping[str, str] | None = None,
        controls: Controls | None = None,
        time_limit_s: float | None = None,
    ) -> Rendered:
        """The conversation as text.

        content_format: "auto" takes what the template reads, "string" or "openai" force one. special_tokens: names such as bos_token and
        their texts. variables: further names for the template; they may override those. controls: the special tokens whose text in
        messages, tools, documents and variables stays text; None trusts it.
        Raises RequestError: the template's own objection, a message it cannot take, or a limit it went over.
        """
        given = conversations.prepare(
            messages,
            self.content_format if content_format == "auto" else content_format,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            documents=documents,
            variables=variables,
            controls=controls,
        )
        names = {
            **(special_tokens or {}),
            **given.variables,
            "tools": given.tools,
            "documents": given.documents,
            "messages": given.messages,
            "add_generation_prompt": add_generation_prompt,
        }
        text = self._run_either(names, environment.chat_template_render_timeout_s() if time_limit_s is None else time_limit_s)
        return Rendered(final_message.cut_final(text) if continue_final_message else text, controls, self._warnings(variables or {}))

    def _warnings(self, variables: Mapping[str, Any]) -> list[str]:
        """What a variable asks for and this template cannot give: a switch of thinking, where it only has a measure of it."""
        off = next((name for name in sorted(SWITCHES) if variables.get(name) is False), None)
        if off is None or EFFORT not in self.reads or not self.reads.isdisjoint(SWITCHES):
            return []
        return [f"{off}: false changes nothing: this model always thinks; {EFFORT} (low, high ...) says how much"]

    def _run_either(self, variables: dict[str, Any], time_limit_s: float) -> str:
        """The text; where the template cannot take the arguments of calls as objects, with these as the JSON that they came as."""
        try:
            return self._run(variables, time_limit_s)
        except RequestError as objection:
            written = conversations.with_written_arguments(variables["messages"])
            if written is None:
                raise
            try:
                return self._run(variables | {"messages": written}, time_limit_s)
            except RequestError:
                raise objection from None

    def _run(self, variables: dict[str, Any], time_limit_s: float) -> str:
        _environment.start(time_limit_s)
        try:
            return self._template.render(variables)
        except jinja2.UndefinedError as fault:
            raise _fault(f"it uses something that the conversation does not have: {fault.message}") from fault
        except jinja2.TemplateError as fault:
            raise _fault(without_marks(str(fault.message or fault))) from fault
        except (RecursionError, MemoryError, OverflowError) as fault:
            raise _fault("it went over a limit of depth or size") from fault
        except Exception as fault:  # a template is a program: whatever it stumbles over is an error of this request
            line = next(
                (frame.lineno for frame in reversed(traceback.extract_tb(fault.__traceback__)) if frame.filename == "<template>"), None
            )
            raise _fault(f"{type(fault).__name__} in line {line}: {without_marks(str(fault))}") from fault


def _fault(what: str) -> RequestError:
    return RequestError(f"the chat template refused the conversation: {what}", parameter="messages")


@lru_cache(maxsize=32)
def compile_template(source: str) -> ChatTemplate:
    """The compiled template; remembered. Raises RequestError if it is wrong."""
    return ChatTemplate(source)


def select(template: str | dict[str, str] | None, *, wants_tools: bool = False, wants_documents: bool = False) -> str:
    """The template to use, where a model may have several by name. Raises RequestError if there is none."""
    if isinstance(template, dict):
        names = [name for name, wanted in (("tool_use", wants_tools), ("rag", wants_documents), ("default", True)) if wanted]
        template = next((template[name] for name in names if name in template), None)
    if not template:
        raise RequestError(
            "this model has no chat template, so it cannot take messages",
            "start with --chat-template FILE (the model's own page shows the format), or use /v1/completions with the whole prompt",
            "messages",
        )
    return template


def check_variables(variables: Mapping[str, Any] | None) -> None:
    """Raise RequestError if a request's chat_template_kwargs name what has a field of its own."""
    for name in variables or {}:
        if name in _RESERVED or not name.isidentifier() or name.startswith("_"):
            raise RequestError(
                f"chat_template_kwargs cannot set {name!r}", "use the request's own field of that name", "chat_template_kwargs"
            )


def load_text(value: str) -> str:
    """What --chat-template means: the text of a file if it names one, else the template itself. Raises ConfigError."""
    if "{" in value or "\n" in value:
        return value
    try:
        return Path(value).read_text(encoding="utf-8")
    except OSError as fault:
        raise ConfigError(
            f"--chat-template: {value!r} is neither a file nor a template", "pass the path of a .jinja file, or the text of a template"
        ) from fault


def _content_format(tree: nodes.Template) -> str:
    """Which form of content a template reads: "openai" or "as_given" if it loops over content, else "string"."""
    names = {"content"}
    for assign in tree.find_all(nodes.Assign):  # {% set content = message.content %} under any name
        if isinstance(assign.target, nodes.Name) and _reads_content(assign.node, names):
            names.add(assign.target.name)
    loops = any(_reads_content(loop.iter, names) for loop in tree.find_all(nodes.For))
    if not loops:
        return "string"
    tested = [test for test in tree.find_all(nodes.Test) if test.name in ("string", "iterable", "sequence", "mapping")]
    return "as_given" if any(_reads_content(test.node, names) for test in tested) else "openai"


def _reads_content(node: nodes.Node | None, names: set[str]) -> bool:
    """Whether an expression is a message's content, filtered or not."""
    while isinstance(node, (nodes.Filter, nodes.Test)):
        node = node.node
    match node:
        case nodes.Getattr(attr="content") | nodes.Getitem(arg=nodes.Const(value="content")):
            return True
        case nodes.Name(name=name):
            return name in names
    return False
