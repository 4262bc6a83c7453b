"""online: `--quantization-config` says what is made of layers, experts and names of a plain checkpoint; the rest stays plain."""

from octavo.errors import ConfigError
from octavo.quant import online
from octavo.quant.format import Source


class Scheme(online.Scheme):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        if not any(source.config.get(key) for key in ("linear", "moe", "targets")):
            hint = """use --quantization-config '{"linear": {"weight": "int8_per_channel_weight_only"}}', or a format's name"""
            raise ConfigError("--quantization online needs a --quantization-config with linear, moe or targets", hint)
