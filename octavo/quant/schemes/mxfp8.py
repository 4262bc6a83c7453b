"""mxfp8: E4M3 in groups of 32 columns that share a power of two; read from a checkpoint, or made while a plain one is loaded."""

from octavo.quant import eight_bit, online, settings, small_floats
from octavo.quant import format as formats
from octavo.quant.format import Role, Source
from octavo.quant.targets import named


class Scheme(online.Scheme):
    quantize = staticmethod(online.mxfp8)

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._source = source
        self._stored = source.config.get("quant_method") == "mxfp8"
        self._plain += settings.names(source.config, "modules_to_not_convert")

    def weight(self, path: str, role: Role) -> formats.Format:
        name = next((name for name in ("weight_scale_inv", "weight_scale") if self._source.number_format(f"{path}.{name}")), None)
        if not self._stored or named(path, self._plain) or (name is None and role in ("embedding", "head", "router")):
            return super().weight(path, role)
        stored = self._source.number_format(f"{path}.{name}")
        return eight_bit.Format(
            number_format="F8_E4M3",
            shared="group",
            group=small_floats.MX_GROUP,
            scale="e8m0",
            scale_format=stored if stored in ("U8", "F8_E8M0") else "U8",
            scale_name=name or "weight_scale_inv",
        )
