"""mxfp4: experts of 4 bit floats in groups of 32 that share a power of two, as gpt-oss has them; all else is plain.

On disk a layer's experts lie in one tensor each of blocks and scales, [experts, rows, groups, 16] and [experts, rows, groups]; the model's
names say which run of it is which expert's projection, under `experts.5.gate_proj.blocks` and `.scales`.
"""

from octavo.quant import format as formats
from octavo.quant import settings, small_floats
from octavo.quant.format import Role, Source
from octavo.quant.schemes import unquantized
from octavo.quant.targets import named


class Scheme(formats.Scheme):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._plain = settings.names(source.config, "modules_to_not_convert")
        self._source = source

    def weight(self, path: str, role: Role) -> formats.Format:
        # what is in blocks says so itself, also where a list leaves out a name
        if self._source.number_format(f"{path}.blocks") is not None:
            return small_floats.MX(weight_name="blocks", scale_name="scales", in_blocks=True)
        if role != "expert" or named(path, self._plain):
            return unquantized.Format(self.dtype)
        return small_floats.MX(weight_name="blocks", scale_name="scales", in_blocks=True)
