"""Tensors over the steps: plots and a table."""
