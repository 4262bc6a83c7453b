"""int8_token: as int8, but each token has one scale: what other engines do, and less exact where a token has a few large numbers."""

from octavo.quant import online


class Scheme(online.Scheme):
    quantize = staticmethod(online.int8_per_channel)
    activation = "int8_token"
