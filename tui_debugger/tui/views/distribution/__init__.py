"""How the values of a tensor are spread: numbers, headroom, histogram."""
