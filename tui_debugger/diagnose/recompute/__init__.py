"""Recomputes operators in float64 from their own recorded inputs, and compares their recorded outputs with the results."""
