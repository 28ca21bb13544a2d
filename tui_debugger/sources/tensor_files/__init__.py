"""Directories of tensor files as a source."""
