"""Request in, text out: LLM, AsyncLLM, and what both share.

May import: engine and below (control plane).
"""
