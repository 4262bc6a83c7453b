"""Options -> resolve -> Config: what was typed, what was decided and why.

Here: every option, the reading of config.json, the decisions. Not here: anything the device decides.
May import: checkpoint and the leaves.
"""
