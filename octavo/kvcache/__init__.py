"""The cache as the control plane sees it: what each layer keeps, which block belongs to whom, which prefixes are shared.

Here: state specs, groups, the block pool, the prefix index, one manager per kind of state. Not here: tensors.
May import: errors, plugins, protocol, config.
"""
