"""int8: weights as in octavo/quant/online.py, and activations in int8 too, with a scale for each 64 numbers of a token (W8A8)."""

from octavo.quant import online


class Scheme(online.Scheme):
    quantize = staticmethod(online.int8_per_channel)
    activation = "int8_group"
