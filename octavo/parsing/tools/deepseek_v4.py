"""DeepSeek V4: DSML, the section named tool_calls."""

from octavo.parsing.tools.deepseek_v32 import dsml

FORMAT = dsml("tool_calls")
