"""Two runs side by side: which nodes are the same, and where the first real difference began."""
