"""A model's files: where they are (folder, hub, catalog, GGUF) and what their headers say.

Here: finding files, reading headers, the names of tensors on disk. Not here: tensors.
May import: errors, environment, logging, plugins.
"""
