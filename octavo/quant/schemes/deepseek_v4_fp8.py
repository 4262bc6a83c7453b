"""deepseek_v4_fp8: DeepSeek V4's own layout: blocks of E4M3 and, for experts, packed 4 bit floats, all with powers of two called `scale`.

Which of the two a weight is in, its header tells.
"""

from octavo.quant import eight_bit, settings, small_floats
from octavo.quant import format as formats
from octavo.quant.format import Role, Source
from octavo.quant.scales import stored_scale
from octavo.quant.schemes import unquantized
from octavo.quant.targets import named


class Scheme(formats.Scheme):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._rows, self._columns = settings.block(source.config, "weight_block_size") or (128, 128)
        self._plain = settings.names(source.config, "modules_to_not_convert")
        self._source = source

    def weight(self, path: str, role: Role) -> formats.Format:
        number_format = self._source.number_format(f"{path}.weight")
        if number_format not in ("I8", "U8", "F8_E4M3") or named(path, self._plain):
            return unquantized.Format(self.dtype)
        name = "scale" if self._source.number_format(f"{path}.scale") is not None else "weight_scale_inv"
        stored = self._source.number_format(f"{path}.{name}")
        is_power = stored in ("F8_E8M0", "U8")
        if number_format != "F8_E4M3":
            return small_floats.MX(weight_format=number_format, scale_name=name, scale_format=stored if is_power and stored else "F8_E8M0")
        return eight_bit.Format(
            number_format=number_format,
            shared="block",
            rows=self._rows,
            group=self._columns,
            scale="e8m0" if is_power else stored_scale(stored, "float32"),
            scale_format=stored if is_power else None,
            scale_name=name,
        )
