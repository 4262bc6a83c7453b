"""Renderers: prompt formats that are code rather than a chat template. One file a format, named as --tokenizer-mode names it.

Here: a file with CONTENT_FORMAT (as messages.prepare takes it) and render(conversation) -> text, in which the marks of rendered.py stay.
Not here: who may choose which format (config/prompt_format.py). May import: text, environment and errors.
"""
