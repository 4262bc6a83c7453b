"""One number format of weights a file: what it stores and how it is read.

May import: ops, parallel and below.
"""
