"""Compares two runs: which nodes are the same, and where the first real difference begins."""
