"""Structured output: what a request may ask of its text, as a grammar, and what the grammar allows token by token.

May import: protocol, checkpoint, config and the leaves. No torch; no text/ either: what a vocabulary is made of is passed in.
"""
