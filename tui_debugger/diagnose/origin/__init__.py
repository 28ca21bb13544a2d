"""Finds where bad tensors start: ``search`` a run, walk the ``path`` upstream from a tensor, write it as ``text``."""
