"""DeepSeek V4.1: DSML, the section named calls, a blank after the token."""

from octavo.parsing.tools.deepseek_v32 import dsml

FORMAT = dsml("calls", space=" ")
