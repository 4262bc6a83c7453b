"""Text and tokens: tokenizer, incremental detokenizer, stop strings, chat templates.

Here: everything between characters and token ids. Not here: what a model's markup means (parsing).
May import: config, checkpoint, protocol and the leaves.
"""
