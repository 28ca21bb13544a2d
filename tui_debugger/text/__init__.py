"""Results as text: numbers, tensors, hits, tables and pictures, the same on screen and in commands."""
