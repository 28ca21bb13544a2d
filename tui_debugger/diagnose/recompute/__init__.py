"""Recomputes operators in float64 from their own recorded inputs, and holds their recorded outputs against that."""
