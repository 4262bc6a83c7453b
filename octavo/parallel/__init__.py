"""Which part of a tensor belongs to which rank.

Here: groups of ranks and the arithmetic of cuts. Not here: layers.
May import: device and below.
"""
