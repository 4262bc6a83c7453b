"""The analysis channel of gpt-oss."""

from octavo.parsing.tools.openai import FORMAT as FORMAT
