"""modelopt_mixed: modelopt's checkpoints in MIXED_PRECISION, as users name them."""

from octavo.quant.schemes import modelopt


class Scheme(modelopt.Scheme):
    """See octavo/quant/schemes/modelopt.py: the checkpoint tells the rest."""
