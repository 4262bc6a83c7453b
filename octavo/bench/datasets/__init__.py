"""Datasets: one a file, named as users type it, with a function `sample(options, words)`.

May import octavo.bench.options, sample and words, and lower rooms.
"""
