"""How results read: numbers, tensors, hits, tables and pictures as text, on screen and in commands."""
