"""Where tensors come from. ``base`` has the Source protocol; every layout is a module beside it."""
