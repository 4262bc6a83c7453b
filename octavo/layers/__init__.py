"""The parts that models are made of: Linear, FusedLinear, RMSNorm, Rope, Attention, MoE.

Here: what several models share. Not here: one model's oddity.
May import: attention, quant and below.
"""
