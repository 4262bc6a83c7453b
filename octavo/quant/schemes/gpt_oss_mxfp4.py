"""gpt_oss_mxfp4: mxfp4, as it is named where other models' mxfp4 is meant to be told apart."""

from octavo.quant.schemes import mxfp4


class Scheme(mxfp4.Scheme):
    """See octavo/quant/schemes/mxfp4.py."""
