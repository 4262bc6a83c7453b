"""<tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes 2 and 3, Qwen2.5, Qwen3."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.parts import Object

FORMAT = ToolFormat(
    call=("<tool_call>", Object(), "</tool_call>"),
    tokens=("<tool_call>", "</tool_call>"),
    strips_before=" \t\r\n",
)
