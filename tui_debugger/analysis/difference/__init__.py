"""Two tensors element by element: differences, ULP, tolerance, what stands out."""
