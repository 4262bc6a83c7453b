"""One way to run workers a file, behind one interface.

May import: protocol, plugins and the leaves.
"""
