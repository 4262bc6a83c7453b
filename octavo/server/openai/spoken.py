"""Spoken: what one answer says, as a message or as the deltas of one. Both are made of the same events, so they say the same."""

from collections.abc import Callable, Iterable

from msgspec import UNSET

from octavo.parsing.events import Arguments, Content, Event, Reasoning, ToolCall
from octavo.server.openai.reply import CallOfTool, Delta, DeltaFunction, DeltaOfCall, Function, Message

NameCall = Callable[[str, int], str]  # a call's function and index -> an id for it


class Spoken:
    """One choice. name_call: gives an id to a call that came without one.

    reasoning_fields: the names under which reasoning is told; none: it is left out.
    """

    def __init__(self, name_call: NameCall, reasoning_fields: tuple[str, ...]) -> None:
        self._name_call = name_call
        self._reasoning_fields = reasoning_fields

    def deltas(self, events: Iterable[Event]) -> list[Delta]:
        """One delta for each event that a client is told."""
        return [delta for event in events if (delta := self._delta(event)) is not None]

    def _delta(self, event: Event) -> Delta | None:
        match event:
            case Content(text):
                return Delta(content=text)
            case Reasoning(text):
                return self._thought(text) if self._reasoning_fields else None
            case ToolCall(index, name, call_id):
                function = DeltaFunction(name=name, arguments="")
                return Delta(tool_calls=[DeltaOfCall(index, call_id or self._name_call(name, index), "function", function)])
            case Arguments(index, text):
                return Delta(tool_calls=[DeltaOfCall(index, function=DeltaFunction(arguments=text))])
        return None

    def _thought(self, text: str) -> Delta:
        delta = Delta()
        for name in self._reasoning_fields:
            setattr(delta, name, text)
        return delta

    def message(self, role: str, events: Iterable[Event], before: str) -> Message:
        """The whole message. before: text that it begins with."""
        content, reasoning = [before] if before else [], []
        calls: list[CallOfTool] = []
        for event in events:
            match event:
                case Content(text):
                    content.append(text)
                case Reasoning(text) if self._reasoning_fields:
                    reasoning.append(text)
                case ToolCall(index, name, call_id):
                    calls.append(CallOfTool(call_id or self._name_call(name, index), Function(name, "")))
                case Arguments(index, text):
                    calls[index].function.arguments += text
        # null says that there is no text because there is something else
        said = "".join(content) if content or not (calls or reasoning) else None
        message = Message(role, said, tool_calls=calls)
        if "reasoning" not in self._reasoning_fields and self._reasoning_fields:
            message.reasoning = UNSET
        for name in self._reasoning_fields:
            setattr(message, name, "".join(reasoning) if reasoning else None)
        return message
