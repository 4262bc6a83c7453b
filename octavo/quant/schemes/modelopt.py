"""modelopt: checkpoints of NVIDIA's Model Optimizer, in FP8, NVFP4, MXFP4, MXFP8 or int8, one for all layers or layer by layer.

Its settings stand in config.json's quantization_config or in hf_quant_config.json beside it. Activations stay in the model's format, also
where the checkpoint has scales for them.
"""

from collections.abc import Mapping
from typing import Any

from octavo.errors import ConfigError
from octavo.quant import eight_bit, settings, small_floats
from octavo.quant import format as formats
from octavo.quant.format import Role, Source
from octavo.quant.scales import stored_scale
from octavo.quant.schemes import unquantized
from octavo.quant.targets import named

_READ = (
    "octavo reads modelopt's FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4, W4A16_NVFP4, MXFP4, W4A8_MXFP4_FP8, MXFP8, W8A16 and "
    "MIXED_PRECISION of these"
)


class Scheme(formats.Scheme):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._config: Mapping[str, Any] = settings.table(source.config, "quantization") or source.config
        self._source = source
        self._plain = settings.names(self._config, "exclude_modules", "ignore")
        self._layers = settings.tables(self._config, "quantized_layers")
        formats.refuse_cache(self._config)

    def weight(self, path: str, role: Role) -> formats.Format:
        is_plain = role in ("embedding", "head", "router") and self._source.number_format(f"{path}.weight_scale") is None
        algorithm = None if is_plain or named(path, self._plain) else self._algorithm(path)
        if algorithm is None:
            return unquantized.Format(self.dtype)
        if self._source.number_format(f"{path}.pre_quant_scale") is not None:
            raise ConfigError(f"{path} has a pre_quant_scale (AWQ, SmoothQuant), which is not read here", _READ)
        extras = formats.unused(self._source, path, "input_scale")
        if algorithm in ("NVFP4", "W4A16_NVFP4"):
            shape = (1,) if self._source.shape(f"{path}.weight_scale_2") == (1,) else ()
            return small_floats.NVFP4(weight_name="weight", whole_name="weight_scale_2", whole_shape=shape, divides=False, extras=extras)
        if algorithm in ("MXFP4", "W4A8_MXFP4_FP8"):
            return small_floats.MX(extras=extras)
        if algorithm == "MXFP8":
            return eight_bit.Format(
                number_format="F8_E4M3", shared="group", group=small_floats.MX_GROUP, scale="e8m0", scale_format="U8", extras=extras
            )
        if algorithm in ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "W8A16"):
            return self._eight_bit(path, algorithm, extras)
        raise ConfigError(f"quantization_config: {path} is in {algorithm!r}, which is not read here", _READ)

    def _algorithm(self, path: str) -> str | None:
        """What a layer is in; None: plain numbers."""
        algorithm = str(self._config.get("quant_algo")).upper()
        if algorithm != "MIXED_PRECISION":
            return algorithm
        found = [about for name, about in self._layers.items() if named(path, [name])]
        return str(found[0].get("quant_algo")).upper() if found else None

    def _eight_bit(self, path: str, algorithm: str, extras: tuple[formats.Field, ...]) -> formats.Format:
        number_format = "I8" if algorithm == "W8A16" else "F8_E4M3"
        scale = stored_scale(self._source.number_format(f"{path}.weight_scale"), "float32")
        shape = self._source.shape(f"{path}.weight_scale") or ()
        if algorithm == "FP8_PB_WO":
            shared = "padded block" if len(shape) == 4 else "block"
            return eight_bit.Format(number_format=number_format, shared=shared, rows=128, group=128, scale=scale, extras=extras)
        by_tensor = "tensor" if len(shape) == 1 else "scalar"
        by_row = "channel" if len(shape) == 2 else "rows"
        return eight_bit.Format(number_format=number_format, shared=by_tensor if algorithm == "FP8" else by_row, scale=scale, extras=extras)
