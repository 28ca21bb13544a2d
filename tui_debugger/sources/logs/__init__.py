"""Logs that hold statistics or hashes of tensors, and no values."""
