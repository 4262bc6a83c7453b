"""Commands: one a file.

May import: everything below; imports it only when the command runs.
"""
