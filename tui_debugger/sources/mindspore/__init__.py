"""Dump directories that MindSpore 1.3 to 2.10 wrote."""
