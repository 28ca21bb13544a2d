"""Compares ranks: how they share the work, which of their tensors must be equal, and which rank went bad first."""
