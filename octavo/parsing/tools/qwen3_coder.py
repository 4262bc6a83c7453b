"""<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>: Qwen3-Coder, Qwen3.5 and later.

One newline on each side of a value is markup.
"""

from octavo.parsing.entries import Entries
from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Name

ENTRIES = Entries(open="<parameter=", key_end=">", close="</parameter>", end="</function>", wrap="\n", forgets_close=True)

FORMAT = ToolFormat(
    open="<tool_call>",
    call=("<function=", Name(until=">"), ENTRIES),
    close="</tool_call>",
    is_open_needed=False,
    tokens=("<tool_call>", "</tool_call>"),
    strips_before=" \t\r\n",
)

ORIGIN = Origin(
    models="Qwen3-Coder, Qwen3.5 and later, Nemotron 3, Step 3.5 and 3.7",
    sources=(
        "chat template of Qwen/Qwen3-Coder-30B-A3B-Instruct",
        "chat template of Qwen/Qwen3.5-9B",
        "chat template of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "chat template of stepfun-ai/Step-3.5-Flash",
    ),
    templates=(("<function=", "<parameter="),),
    without=("<seed:tool_call>",),
)
