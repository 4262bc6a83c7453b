"""How models write their reasoning: one table a file, named as users type it. A file gives FORMAT (of octavo.parsing.formats) and ORIGIN.

May import: octavo.parsing.
"""
