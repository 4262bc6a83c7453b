"""int4: see octavo/quant/online.py."""

from octavo.quant import online


class Scheme(online.Scheme):
    quantize = staticmethod(online.int4_by_groups)
