"""Another name of glm47: vLLM's module is called so."""

from octavo.parsing.origin import Origin
from octavo.parsing.tools import glm47

FORMAT = glm47.FORMAT
ORIGIN = Origin(models="as glm47, by the name of vLLM's module", sources=glm47.ORIGIN.sources)
