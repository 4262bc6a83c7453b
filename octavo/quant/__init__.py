"""Number formats of weights: what a checkpoint stores, how it is cut, and the layout that kernels get of it.

May import: ops, parallel and below.
"""
