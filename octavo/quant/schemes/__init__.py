"""One scheme a file, called what users type after --quantization or what a checkpoint's quant_method says.

May import: quant and below.
"""
