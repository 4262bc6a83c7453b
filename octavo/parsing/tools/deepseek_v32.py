"""DSML: sections of invocations whose parameters say whether they are text or JSON. DeepSeek V3.2; V4 and V4.1 have other words."""

from octavo.parsing.entries import Entries
from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Name, OneOf


def dsml(section: str, space: str = "") -> ToolFormat:
    """The format with this name for its section. space: what stands between the token and the words."""
    open_, close = f"<｜DSML｜{space}", f"</｜DSML｜{space}"
    entries = Entries(
        open=f'{open_}parameter name="',
        key_end='"',
        type_open=' string="',
        type_end='">',
        text_types=("true",),
        close=f"{close}parameter>",
        end=f"{close}invoke>",
    )
    return ToolFormat(
        open=f"{open_}{section}>",
        call=(f'{open_}invoke name="', Name(until='"'), OneOf((("/>",), (">", entries)))),
        close=f"{close}{section}>",
        tokens=("｜DSML｜",),
        strips_before="\n",
    )


FORMAT = dsml("function_calls")

ORIGIN = Origin(
    models="DeepSeek V3.2",
    sources=("encoding code of deepseek-ai/DeepSeek-V3.2",),
    templates=(("DSML", "function_calls"),),
    without=("tool_calls>",),
    model_types=("deepseek_v32",),
)
