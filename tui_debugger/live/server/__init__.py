"""The gRPC server that trainings connect to: ``serve`` opens it."""
