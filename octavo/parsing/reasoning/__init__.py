"""How models write their reasoning: one table a file, named as users type it. A file gives FORMAT, a value of octavo.parsing.formats."""
