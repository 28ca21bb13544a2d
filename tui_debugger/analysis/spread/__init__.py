"""How the values of a tensor are spread: bins, percentiles, room in the element type."""
