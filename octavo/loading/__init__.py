"""From files to a model that can run: index, shard, quantize, fill, finish.

May import: models and below.
"""
