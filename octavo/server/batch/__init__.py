"""Batch files: many requests in a file, answered through the server's own endpoints in this process, kept as they come.

May import: what server may; of server itself app, state, errors and run. Its parts: lines (in), answers (the endpoints), journal (out),
transfer (addresses), run.
"""
