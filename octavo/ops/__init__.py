"""One op a file: a reference in plain torch with its test cases, and the order in which implementations are tried.

Here: references, cases, choice. Not here: layers, state.
May import: device and below.
"""
