"""Recomputes operators in float64 from their own recorded inputs, and compares the recorded outputs with that."""
