"""What was found on a tensor, what usually causes it, what speaks for which cause here, and what to do next."""
