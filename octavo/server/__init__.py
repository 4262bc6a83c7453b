"""HTTP: the app, one file per endpoint, errors, metrics.

May import: frontend and below (control plane).
"""
