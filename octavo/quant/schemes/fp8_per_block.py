"""fp8_per_block: see octavo/quant/online.py."""

from octavo.quant import online


class Scheme(online.Scheme):
    quantize = staticmethod(online.fp8_per_block)
