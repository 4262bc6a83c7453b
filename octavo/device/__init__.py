"""What a device is: its memory, number formats, threads, arena.

Here: one file per kind of device. Not here: kernels.
May import: config, checkpoint, protocol and the leaves. Imports torch.
"""
