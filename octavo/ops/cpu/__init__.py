"""Implementations for the CPU, in numba. Nothing here is imported before the CPU's features were looked at.

May import: ops' references, device and below.
"""
