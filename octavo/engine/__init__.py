"""The loop: requests in, plans to the worker, results back, outputs out; and the processes it runs in.

The worker is reached by plugins.load only, so that importing this room never imports torch.
May import: scheduler and below (control plane).
"""
