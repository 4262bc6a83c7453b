"""One attention back end a file: how it lays out a cache page, stores into it and attends over it.

May import: ops, parallel, kvcache.specs and below.
"""
