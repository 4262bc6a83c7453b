"""OpenAI's endpoints, one a file.

May import: server's own files, frontend and below.
"""
