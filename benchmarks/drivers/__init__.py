"""Drivers: one file an engine, run in that engine's environment. Nothing of octavo but its own driver and the roofs' is imported here."""
