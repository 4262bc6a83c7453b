"""modelopt_fp4: modelopt's checkpoints in NVFP4, as users name them."""

from octavo.quant.schemes import modelopt


class Scheme(modelopt.Scheme):
    """See octavo/quant/schemes/modelopt.py: the checkpoint tells the rest."""
