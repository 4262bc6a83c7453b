"""From logits to tokens: one processor a file, and the order they run in.

May import: models and below.
"""
