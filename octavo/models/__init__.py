"""One model type a file: its configuration, its mathematics and the names of its tensors.

Not here: number formats, devices, loading. May import: layers and below.
"""
