"""One file for each library that turns a grammar into masks; a file's name is what users type as `backend`.

May import: grammar and what it may import.
"""
