"""The analysis channel of gpt-oss."""

from octavo.parsing.tools import openai

FORMAT = openai.FORMAT
