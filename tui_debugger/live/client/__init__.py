"""The training side of the live protocol: needs NumPy and gRPC only, and never hurts the training."""
