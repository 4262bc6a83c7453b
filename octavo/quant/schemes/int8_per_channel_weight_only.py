"""int8_per_channel_weight_only: see octavo/quant/online.py."""

from octavo.quant import online


class Scheme(online.Scheme):
    quantize = staticmethod(online.int8_per_channel)
