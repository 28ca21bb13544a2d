"""Checks: which tensors are needed, how they are measured, evaluated, and what comes out."""
