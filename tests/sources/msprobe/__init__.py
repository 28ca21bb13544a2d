"""Dumps of msprobe."""
