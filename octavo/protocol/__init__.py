"""The contract: what the front end, the engine core and the worker say to each other.

Here: plain messages and parameters, each one a msgspec.Struct. Not here: behaviour of any process.
May import: errors.
"""
