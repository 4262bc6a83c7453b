"""Batch files: many requests in a file, answered through the server's own endpoints in this process, kept as they come.

Imports what a server imports; its parts are lines (in), answers (the endpoints), journal (out), transfer (addresses) and run.
"""
