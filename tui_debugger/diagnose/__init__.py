"""Diagnoses a run: where it went wrong, related tensors, their history, usual causes, differences from other runs."""
