"""Kimi K2: a section of calls, each an id that holds the name, and JSON."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Arguments, Name

FORMAT = ToolFormat(
    open="<|tool_calls_section_begin|>",
    call=("<|tool_call_begin|>", Name(is_id=True), "<|tool_call_argument_begin|>", Arguments(), "<|tool_call_end|>"),
    close="<|tool_calls_section_end|>",
    tokens=(
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
    ),
    skips_noise=True,
)

ORIGIN = Origin(
    models="Kimi K2, K2 Thinking, K2.5 and K2.6",
    sources=("chat template of moonshotai/Kimi-K2-Instruct-0905", "chat template of moonshotai/Kimi-K2.6"),
    templates=(("<|tool_calls_section_begin|>",),),
)
