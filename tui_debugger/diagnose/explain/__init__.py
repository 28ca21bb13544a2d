"""Explains findings: the usual causes, what speaks for which of them here, and what to do next."""
