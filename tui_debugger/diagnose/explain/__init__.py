"""Explains findings: the usual causes, the evidence for each, and what to do next."""
