"""Bench: load for a server or an engine, and what came of it: datasets, arrival times, figures, tables, plots. Knows servers by HTTP only.

May import frontend and lower rooms of the control plane.
"""
