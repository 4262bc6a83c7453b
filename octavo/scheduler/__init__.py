"""Who computes how many tokens in the next step.

Here: the queue, the limits, the scheduler. Not here: what a limit's scarce thing is (kvcache).
May import: kvcache, protocol, config and the leaves.
"""
