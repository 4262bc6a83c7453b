"""modelopt_mxfp8: modelopt's checkpoints in MXFP8, as users name them."""

from octavo.quant.schemes import modelopt


class Scheme(modelopt.Scheme):
    """See octavo/quant/schemes/modelopt.py: the checkpoint tells the rest."""
