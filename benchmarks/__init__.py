"""Benchmarks: octavo beside its peers and the machine's roofs, by commands that anybody can repeat."""
