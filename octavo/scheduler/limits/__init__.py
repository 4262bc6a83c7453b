"""One scarce thing a file: each a Limit that is asked, then taken, then released.

May import: kvcache, protocol, config and the leaves.
"""
