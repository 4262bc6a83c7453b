"""GLM 4.7 and 5: the format of GLM 4.5, without newlines between its markers."""

from octavo.parsing.tools import glm45

FORMAT = glm45.FORMAT
